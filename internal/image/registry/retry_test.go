package registry

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"7":                             7 * time.Second,
		" 7 ":                           7 * time.Second,
		"-3":                            0,
		"9223372036854775807":           365 * 24 * time.Hour,
		"99999999999999999999":          0,
		"soon":                          0,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, not %v", value, got, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		n      int
		random float64
		want   time.Duration
	}{{1, 0, time.Second}, {1, 1, 750 * time.Millisecond}, {2, 0, 2 * time.Second}, {5, 0, 16 * time.Second}, {5, 1, 12 * time.Second}} {
		if got := backoff(time.Second, c.n, c.random); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestRegistrySays(t *testing.T) {
	for body, want := range map[string]string{
		``:     "",
		`html`: "",
		`{"errors":[{"code":"TOOMANYREQUESTS","message":"pull rate limit"}]}`: "toomanyrequests: pull rate limit",
		`{"errors":[{"code":"DENIED"},{"message":"no\nline\u001b[31m"}]}`:     "denied; no line [31m",
		`{"errors":[{"message":"` + strings.Repeat("x", 400) + `"}]}`:         strings.Repeat("x", 300) + "...",
	} {
		if got := registrySays([]byte(body)); got != want {
			t.Errorf("%s: %q", body, got)
		}
	}
}

func TestWhatIsTriedAgain(t *testing.T) {
	for err, want := range map[error]bool{
		io.ErrUnexpectedEOF:                        true,
		fmt.Errorf("read: %w", syscall.ECONNRESET): true,
		&statusError{code: 503}:                    false, // has been
		syscall.ENOSPC:                             false,
	} {
		if got := MayPass(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// FuzzRetryAfter: whatever a registry writes, it is no wait before now.
func FuzzRetryAfter(f *testing.F) {
	f.Add("1")
	f.Add("Fri, 02 Jan 2026 03:04:35 GMT")
	f.Fuzz(func(t *testing.T, v string) {
		if d := retryAfter(http.Header{"Retry-After": {v}}, time.Unix(0, 0)); d < 0 {
			t.Fatal(d)
		}
	})
}
