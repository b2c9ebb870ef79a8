//go:build cgo

package life

import (
	"testing"
	"time"

	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
)

func TestVerdict(t *testing.T) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := now.Add(-time.Hour)
	for name, tc := range map[string]struct {
		e              journal.Exit
		known, started bool
		head           string
		want           protocol.Exit
	}{
		"plain":                 {journal.Exit{Code: 7, At: at, Executed: true}, true, true, "out", protocol.Exit{Code: 7, At: at}},
		"program exits 255":     {journal.Exit{Code: 255, At: at, Executed: true}, true, true, "", protocol.Exit{Code: 255, At: at}},
		"cannot be executed":    {journal.Exit{Code: 255, At: at}, true, true, "exec x: bad\n", protocol.Exit{Code: 128, At: at, Reason: "StartError", Message: "exec x: bad"}},
		"killed before execve":  {journal.Exit{Code: 137, At: at}, true, true, "", protocol.Exit{Code: 137, At: at}},
		"killed before Start":   {journal.Exit{Code: 137, At: at}, true, false, "", protocol.Exit{Code: 137, At: at}},
		"nobody was there":      {journal.Exit{}, false, true, "", protocol.Exit{Code: 255, At: now, Reason: "Unknown"}},
		"init failed, no Start": {journal.Exit{Code: 255, At: at}, true, false, "", protocol.Exit{Code: 255, At: at}},
	} {
		got := verdict(tc.e, tc.known, tc.started, tc.head, now)
		if tc.want.Reason == protocol.ReasonUnknown {
			tc.want.Message = got.Message
		}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
