package plan

import (
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAVerdictIsKept: what is read is what was written, with every field that there is.
func TestAVerdictIsKept(t *testing.T) {
	full := Terminated("Evicted", "it takes \"too much\"", 3*time.Second)
	full.Since = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	full.Condition.LastTransitionTime = metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	value := reflect.ValueOf(*full)
	for i := range value.NumField() {
		if f := value.Type().Field(i); f.IsExported() && value.Field(i).IsZero() {
			t.Errorf("the test does not set %s", f.Name)
		}
	}
	for _, v := range []*Verdict{full, Rejected("OutOfcpu", ""), {Phase: v1.PodSucceeded}} {
		raw, err := v.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeVerdict(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got.Condition != nil {
			got.Condition.LastTransitionTime.Time = got.Condition.LastTransitionTime.UTC()
		}
		if !reflect.DeepEqual(got, v) {
			t.Errorf("got  %+v\nwant %+v", got, v)
		}
	}
}

func TestDecodeVerdict(t *testing.T) {
	const first = `{"version":1,"phase":"Failed","reason":"Evicted","message":"m","graceNanoseconds":1000000000,"since":"2026-01-02T03:04:05Z"}`
	if v, err := DecodeVerdict([]byte(first)); err != nil || v.Reason != "Evicted" || *v.Grace != time.Second || v.Since.Year() != 2026 {
		t.Errorf("the first format: %+v, %v", v, err)
	}
	for raw, want := range map[string]string{
		"":                                "unexpected end",
		`{"version":2,"phase":"Failed"}`:  "version 2",
		`{"version":1,"phase":"Running"}`: `phase is "Running"`,
		`{}`:                              "version 0",
	} {
		if v, err := DecodeVerdict([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want an error with %q", raw, v, err, want)
		}
	}
}
