package scheme_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

func TestWireHasNoInternalVersion(t *testing.T) {
	for gvk := range newSet(t).Wire.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal && !strings.HasSuffix(gvk.Kind, "WatchEvent") {
			t.Errorf("%s is in the wire's scheme", gvk)
		}
	}
}
