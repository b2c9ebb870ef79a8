package controllers

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

type answered struct{ requests int }

func (a *answered) RoundTrip(*http.Request) (*http.Response, error) {
	a.requests++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// What writes passes for so long after a renewal, what reads always.
func TestFence(t *testing.T) {
	begin := time.Now()
	f := fence{time: 10 * time.Second}
	if f.passes(begin) {
		t.Error("it is open from the beginning on")
	}
	f.renewed(begin)
	for after, want := range map[time.Duration]bool{0: true, 9 * time.Second: true, 10 * time.Second: false, time.Hour: false} {
		if f.passes(begin.Add(after)) != want {
			t.Errorf("%v after a renewal: %t", after, !want)
		}
	}
	// The machine has slept, and the monotonic clock with it: the other one tells.
	if f.passes(begin.Add(time.Hour).Round(0)) {
		t.Error("it is open when the machine has slept for an hour")
	}
	var below answered
	send := func(method string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, "https://localhost/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.wrap(&below).RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	f.renewed(time.Now().Add(-time.Minute))
	if err := send(http.MethodPost); !errors.Is(err, errNotElected) {
		t.Errorf("a request that writes, a minute after the renewal: %v", err)
	}
	if err := send(http.MethodGet); err != nil || below.requests != 1 {
		t.Errorf("a request that reads: %v, %d requests", err, below.requests)
	}
	f.renewed(time.Now())
	if err := send(http.MethodPost); err != nil || below.requests != 2 {
		t.Errorf("a request that writes, after a renewal: %v, %d requests", err, below.requests)
	}
}
