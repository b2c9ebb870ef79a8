package scheme_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/apiserver/scheme"
)

func newSet(t *testing.T) *scheme.Set {
	t.Helper()
	set, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestRoundTripWithoutConversion(t *testing.T) {
	set := newSet(t)
	for _, info := range set.Codecs.SupportedMediaTypes() {
		t.Run(info.MediaType, func(t *testing.T) {
			in := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"k": []byte("v")}}
			raw, err := runtime.Encode(set.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), in)
			if err != nil {
				t.Fatal(err)
			}
			out, err := runtime.Decode(set.Codecs.UniversalDecoder(), raw)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(out, in) {
				t.Errorf("decoded %#v, want %#v: the in-memory form has no apiVersion and kind", out, in)
			}
		})
	}
}

func TestObjectKindsNamesTheVersionFirst(t *testing.T) {
	set := newSet(t)
	for _, obj := range []runtime.Object{&corev1.Pod{}, &corev1.Event{}, &corev1.Node{}} {
		gvks, _, err := set.Scheme.ObjectKinds(obj)
		if err != nil {
			t.Fatal(err)
		}
		if gvks[0].Version != "v1" || gvks[1].Version != runtime.APIVersionInternal {
			t.Errorf("%T: kinds %v, want v1, then the internal version", obj, gvks)
		}
	}
}

func TestParameters(t *testing.T) {
	set := newSet(t)
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	tail, stream := int64(7), "Stdout"
	for _, tc := range []struct {
		query string
		want  runtime.Object
		fault string
	}{
		{query: "container=c&follow=true&tailLines=7&sinceTime=2026-01-02T03:04:05Z&stream=Stdout&timestamps",
			want: &corev1.PodLogOptions{Container: "c", Follow: true, TailLines: &tail, SinceTime: &since, Stream: &stream, Timestamps: true}},
		{query: "command=sh&command=-c&stdin=1&stdout=false&tty=true", want: &corev1.PodExecOptions{Command: []string{"sh", "-c"}, Stdin: true, TTY: true}},
		{query: "stderr=true&container=x", want: &corev1.PodAttachOptions{Stderr: true, Container: "x"}},
		{query: "ports=80&ports=443", want: &corev1.PodPortForwardOptions{Ports: []int32{80, 443}}},
		{query: "tailLines=many", want: &corev1.PodLogOptions{}, fault: `query parameter tailLines="many": must be a whole number`},
		{query: "ports=0", want: &corev1.PodPortForwardOptions{}, fault: `must be a port from 1 to 65535`},
		{query: "sinceTime=now", want: &corev1.PodLogOptions{}, fault: `must be a time`},
	} {
		t.Run(tc.query, func(t *testing.T) {
			values, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			got := reflect.New(reflect.TypeOf(tc.want).Elem()).Interface().(runtime.Object)
			err = set.ParameterCodec.DecodeParameters(values, corev1.SchemeGroupVersion, got)
			if tc.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fault) {
					t.Fatalf("error %v, want one with %q", err, tc.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !apiequality.Semantic.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestFieldLabels(t *testing.T) {
	set := newSet(t)
	pod := corev1.SchemeGroupVersion.WithKind("Pod")
	if l, v, err := set.Scheme.ConvertFieldLabel(pod, "spec.nodeName", "n"); err != nil || l != "spec.nodeName" || v != "n" {
		t.Errorf("spec.nodeName: %q %q %v", l, v, err)
	}
	if _, _, err := set.Scheme.ConvertFieldLabel(pod, "spec.color", "red"); err == nil || !strings.Contains(err.Error(), "spec.nodeName") {
		t.Errorf("spec.color: error %v, want one that lists the fields there are", err)
	}
}
