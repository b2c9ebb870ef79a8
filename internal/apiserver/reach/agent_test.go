package reach

import (
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestQueriesToTheAgent(t *testing.T) {
	one, tail, stdout, all := int64(1), int64(5), corev1.LogStreamStdout, corev1.LogStreamAll
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)))
	for _, tc := range []struct {
		got  url.Values
		want string
	}{
		{logQuery(&corev1.PodLogOptions{}), ""},
		{logQuery(&corev1.PodLogOptions{Follow: true, Previous: true, Timestamps: true, SinceTime: &since, TailLines: &tail, LimitBytes: &one}),
			"follow=true&limitBytes=1&previous=true&sinceTime=2026-01-02T03:04:05+01:00&tailLines=5&timestamps=true"},
		{logQuery(&corev1.PodLogOptions{SinceSeconds: &one, Stream: &stdout}), "sinceSeconds=1&stream=Stdout"},
		{logQuery(&corev1.PodLogOptions{Stream: &all}), ""},
		{streamQuery(true, true, false, true, []string{"a b", "c"}), "command=a b&command=c&input=1&output=1&tty=1"},
		{streamQuery(false, false, true, false, nil), "error=1"},
	} {
		got, err := url.QueryUnescape(strings.ReplaceAll(tc.got.Encode(), "+", "%20"))
		if err != nil || got != tc.want {
			t.Errorf("query %q, want %q", got, tc.want)
		}
	}
}
