package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// A guestbook of both parts: what is written is read, by browsers and others, and is there after a start from the same directory, also after a crash while an
// entry was written.
func TestGuestbook(t *testing.T) {
	dir := t.TempDir()
	ask := func(browser bool, form url.Values) (status int, text string) {
		t.Helper()
		s, err := openStore(dir, filepath.Join(dir, "no dice"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		back := httptest.NewServer(s.handler())
		defer back.Close()
		front := httptest.NewServer((&web{title: "Our <guests>", store: back.URL, me: "pod-1"}).handler())
		defer front.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL, nil)
		if form != nil {
			req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, strings.NewReader(form.Encode()))
		}
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if browser {
			req.Header.Set("Accept", "text/html,*/*")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	if _, got := ask(false, url.Values{"message": {"hello,\nyou"}}); got != "thank you\n" {
		t.Errorf("signed: %q", got)
	}
	if _, got := ask(true, url.Values{"message": {"<b>me</b>"}}); !strings.Contains(got, "&lt;b&gt;me&lt;/b&gt;") { // it is sent on to the page
		t.Errorf("signed in a browser: %q", got)
	}
	for _, bad := range []string{" ", strings.Repeat("x", maxMessage+1)} {
		if status, got := ask(false, url.Values{"message": {bad}}); status != http.StatusBadGateway || !strings.Contains(got, "say something, in at most 280") {
			t.Errorf("a message of %d bytes: %d, %q", len(bad), status, got)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "entries"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"message":"cu`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	ask(false, url.Values{"message": {"after a crash"}})
	if _, got := ask(false, nil); got != "Our <guests> (this is pod-1)\n  hello, you\n  <b>me</b>\n  after a crash\n" {
		t.Errorf("in plain text: %q", got)
	}
	if _, got := ask(true, nil); !strings.Contains(got, "<h1>Our &lt;guests&gt;</h1>") {
		t.Errorf("in a browser: %s", got)
	}
}

func TestWithoutStore(t *testing.T) {
	front := httptest.NewServer((&web{title: "Guestbook", store: "http://127.0.0.1:1", me: "pod-1"}).handler())
	defer front.Close()
	var out strings.Builder
	if err := get(t.Context(), front.URL, &out); err != nil || !strings.Contains(out.String(), "  the store does not answer: ") {
		t.Errorf("%v, %q", err, out.String())
	}
}

// What signs waits for somebody who answers.
func TestSign(t *testing.T) {
	s, err := openStore(t.TempDir(), "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	back := httptest.NewServer(s.handler())
	defer back.Close()
	var asked atomic.Int32
	whole := (&web{title: "Guestbook", store: back.URL, me: "pod-1"}).handler()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		whole.ServeHTTP(w, r)
	}))
	defer front.Close()
	var out strings.Builder
	if err := sign(t.Context(), front.URL, "a b", &out); err != nil || out.String() != "thank you\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	if len(s.entries) != 1 || s.entries[0].Message != "a b" {
		t.Errorf("the entries are %v", s.entries)
	}
}

func TestThrow(t *testing.T) {
	if n, err := throw(filepath.Join(t.TempDir(), "none")); n != 0 || err != nil {
		t.Errorf("without a device: %d, %v", n, err)
	}
	var seen []int
	for range 1000 {
		n, err := throw("/dev/urandom")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(seen, n) {
			seen = append(seen, n)
		}
	}
	if slices.Sort(seen); !slices.Equal(seen, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("a thousand throws: %v", seen)
	}
	if _, err := throw("/dev/null"); err == nil {
		t.Error("a device that gives nothing gives a number")
	}
}
