package pod

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestChooseContainer(t *testing.T) {
	pod := func(inits, containers, ephemeral string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		for name := range strings.FieldsSeq(inits) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name})
		}
		for name := range strings.FieldsSeq(containers) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		}
		for name := range strings.FieldsSeq(ephemeral) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}})
		}
		return p
	}
	for _, tc := range []struct {
		pod         *corev1.Pod
		named, want string
		err         string
	}{
		{pod: pod("", "c", ""), want: "c"},
		{pod: pod("i j", "c", "e"), want: "c"},
		{pod: pod("", "c d", ""), named: "d", want: "d"},
		{pod: pod("i", "c", ""), named: "i", want: "i"},
		{pod: pod("i", "c", "e"), named: "e", want: "e"},
		{pod: pod("", "c d", ""), err: "a container name must be specified for pod p, choose one of: [c d]"},
		{pod: pod("i", "c d", "e"), err: "a container name must be specified for pod p, choose one of: [i c d e]"},
		{pod: pod("", "c", ""), named: "x", err: "container x is not valid for pod p"},
	} {
		got, err := chooseContainer(tc.pod, tc.named)
		if got != tc.want || (tc.err == "") != (err == nil) {
			t.Errorf("%q: %q, %v, want %q, %q", tc.named, got, err, tc.want, tc.err)
		}
		if err != nil && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%q: error %v, want a bad request with %q", tc.named, err, tc.err)
		}
	}
}

func TestValidateLogOptions(t *testing.T) {
	zero, one, negative, odd := int64(0), int64(1), int64(-1), "Stdlog"
	stdout, now := corev1.LogStreamStdout, metav1.Now()
	for want, opts := range map[string]corev1.PodLogOptions{
		"":             {TailLines: &zero, LimitBytes: &one, SinceSeconds: &one, InsecureSkipTLSVerifyBackend: true},
		"tailLines":    {TailLines: &negative},
		"limitBytes":   {LimitBytes: &zero},
		"sinceSeconds": {SinceSeconds: &zero},
		"at most one":  {SinceSeconds: &one, SinceTime: &now},
		"stream":       {Stream: &odd},
		"specific":     {Stream: &stdout, TailLines: &one},
	} {
		errs := validateLogOptions(&opts)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), want)) {
			t.Errorf("errors %v, want one with %q", errs, want)
		}
	}
}

func TestBadQueriesAreRefusedByName(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"tailLines=many":      "tailLines",
		"follow=perhaps":      "follow",
		"sinceTime=yesterday": "sinceTime",
	} {
		values, _ := url.ParseQuery(query)
		err := scheme.Convert(&values, &corev1.PodLogOptions{}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that names %s", query, err, want)
		}
	}
}
