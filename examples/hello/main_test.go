package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReportTellsTheDevice(t *testing.T) {
	if got := describe("/dev/zero"); got != "/dev/zero, character device 1:5, read 4 bytes, wrote 4" {
		t.Error(got)
	}
	if got := describe("/dev/null"); got != "/dev/null, character device 1:3, read 0 bytes, wrote 4" {
		t.Error(got)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := describe(plain); !strings.Contains(got, "no device") {
		t.Error(got)
	}
}

func TestInterestingEnvironment(t *testing.T) {
	got := interesting([]string{"PATH=/bin", "POD_NAME=p", "EXAMPLE_WIDGET=w0", "HOME=/", "PORT=1"})
	if want := []string{"EXAMPLE_WIDGET=w0", "POD_NAME=p", "PORT=1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Both modes end at once, without an error, when they are told to.
func TestServeAndGet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	asked := make(chan error, 1)
	go func() { asked <- ask(ctx, "http://127.0.0.1:"+port+"/") }() // before there is anybody
	go func() { done <- serve(ctx, port) }()
	go func() { done <- watch(ctx, port) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		answer, err := get(t.Context(), "http://127.0.0.1:"+port+"/")
		if err == nil {
			if !strings.HasPrefix(answer, "hello from ") {
				t.Errorf("answer %q", answer)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if err := <-asked; err != nil {
		t.Errorf("ask: %v", err)
	}
	stop()
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
	}
}
