package server

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"monopod.dev/monopod/internal/agent/podlog"
	"monopod.dev/monopod/internal/kit/ids"
)

// attach is what a client gets that attaches to the container.
func (b *bench) attach() (stdout, stderr string, err error) {
	b.Helper()
	at, err := url.Parse(b.url + "/attach/ns/p/a?input=1&output=1&error=1")
	if err != nil {
		b.Fatal(err)
	}
	b.ca.Client(b, "admin") // writes the two files
	dir := filepath.Dir(b.ca.CAFile())
	tls := rest.TLSClientConfig{CAFile: b.ca.CAFile(), CertFile: filepath.Join(dir, "client-admin.crt"), KeyFile: filepath.Join(dir, "client-admin.key")}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: b.url, TLSClientConfig: tls}, http.MethodPost, at)
	if err != nil {
		b.Fatal(err)
	}
	var out, errOut bytes.Buffer
	err = e.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("typed\n"), Stdout: &out, Stderr: &errOut})
	return out.String(), errOut.String(), err
}

func (b *bench) printed(lines ...string) {
	b.Helper()
	f, err := os.OpenFile(b.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for _, l := range lines {
		fmt.Fprintf(f, "%s %s\n", time.Now().Format(time.RFC3339Nano), l)
	}
}

// TestAttachAfterTheEnd: who has read the log of a container, and attaches when it has just ended, gets what he has not read yet, and no error.
func TestAttachAfterTheEnd(t *testing.T) {
	b := newBench(t)
	admin := b.client("admin")
	read := func(query, want string) {
		t.Helper()
		if code, body := b.get(admin, "/containerLogs/ns/p/a"+query, ""); code != http.StatusOK || body != want {
			t.Fatalf("log: %d %q, want %q", code, body, want)
		}
	}
	read("?tailLines=1", "two\n") // all of it is not asked for
	b.rt.Exit(b.id, 0)
	if out, errOut, err := b.attach(); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("nobody has read the log: %q, %q, %v", out, errOut, err)
	}
	read("", "one\ntwo\n")
	for _, c := range []struct {
		printed        []string
		stdout, stderr string
	}{
		{nil, "", ""},
		{[]string{"stdout F three", "stderr F four", "stdout P fi", "stdout P ve"}, "three\nfive", "four\n"},
	} {
		b.printed(c.printed...)
		if out, errOut, err := b.attach(); out != c.stdout || errOut != c.stderr || err != nil {
			t.Errorf("%q, %q, %v; want %q, %q", out, errOut, err, c.stdout, c.stderr)
		}
	}
	if err := os.Rename(b.log, b.log+".20260101-000000"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errOut, err := b.attach(); err == nil {
		t.Errorf("the log that was read is not there any more: %q, %q", out, errOut)
	}
}

// TestAttachAtTheEnd: a container that has printed something since its log was read is on its way to its end, which is waited for.
func TestAttachAtTheEnd(t *testing.T) {
	b := newBench(t)
	if code, body := b.get(b.client("admin"), "/containerLogs/ns/p/a", ""); code != http.StatusOK || body != "one\ntwo\n" {
		t.Fatalf("log: %d %q", code, body)
	}
	b.printed("stdout F three")
	got := make(chan string, 1)
	go func() {
		out, errOut, err := b.attach()
		got <- fmt.Sprintf("%q, %q, %v", out, errOut, err)
	}()
	b.rt.Exit(b.id, 0)
	for {
		b.tick()
		select {
		case out := <-got:
			if out != `"three\n", "", <nil>` {
				t.Error(out)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// TestAttachWhileItEnds: a container prints its last between the log's being read and the runtime's answer, and ends then.
func TestAttachWhileItEnds(t *testing.T) {
	b := newBench(t)
	if code, body := b.get(b.client("admin"), "/containerLogs/ns/p/a", ""); code != http.StatusOK || body != "one\ntwo\n" {
		t.Fatalf("log: %d %q", code, body)
	}
	b.rt.Attaching = func() {
		b.printed("stdout F three")
		b.rt.Exit(b.id, 0)
	}
	if out, errOut, err := b.attach(); out != "three\n" || errOut != "" || err != nil {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
}

func TestSeen(t *testing.T) {
	s := seen{moment: moment}
	now := time.Now()
	for i := range maxSeen + 1 {
		s.note(ids.ContainerID(fmt.Sprint(i)), podlog.Position{}, now)
	}
	if _, ok := s.of("0", now.Add(moment-1)); !ok || len(s.logs) != maxSeen {
		t.Errorf("a moment later: %t, %d are remembered", ok, len(s.logs))
	}
	if _, ok := s.of("0", now.Add(moment)); ok {
		t.Error("it is remembered for longer than a moment")
	}
	s.note("new", podlog.Position{}, now.Add(moment))
	if _, ok := s.of("new", now.Add(moment)); !ok || len(s.logs) != 1 {
		t.Errorf("what is old is not forgotten: %d", len(s.logs))
	}
}
