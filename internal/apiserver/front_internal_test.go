package apiserver

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// What strangers can bring about any number of times is no warning.
func TestFaultsOfConnections(t *testing.T) {
	var told bytes.Buffer
	log := slog.NewLogLogger(faults{slog.NewTextHandler(&told, nil)}, slog.LevelWarn)
	log.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	if told.Len() > 0 {
		t.Errorf("a handshake that failed is told of: %s", told.String())
	}
	log.Print("http: superfluous response.WriteHeader call")
	if got := told.String(); !strings.Contains(got, "WARN") || !strings.Contains(got, "superfluous") {
		t.Errorf("told is %q", got)
	}
}
