package server

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/kit/preauth"
)

// Who connects and does not authenticate is cut off; who has done so is left alone.
func TestStrangersAreCutOff(t *testing.T) {
	const limit = 5 * time.Second // long enough for a handshake on a slow machine
	b := newBenchWith(t, preauth.Limits{Handshake: limit, Header: limit, Idle: limit / 10, PerSource: 8})
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // it only ends a test that fails
			t.Fatal(err)
		}
		return conn
	}
	secure := func(user string) *tls.Conn {
		cfg := &tls.Config{RootCAs: b.ca.Pool(), ServerName: "127.0.0.1"}
		if user != "" {
			cfg.Certificates = []tls.Certificate{b.ca.Client(t, user)}
		}
		return tls.Client(dial(), cfg)
	}
	closed := func(who string, conn net.Conn) {
		t.Helper()
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the server keeps the connection of %s", who)
		}
	}
	admin := secure("admin")
	answers := bufio.NewReader(admin)
	get := func() {
		t.Helper()
		fmt.Fprint(admin, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("who is known is answered with %d, %v", resp.StatusCode, err)
		}
	}
	get()
	for who, says := range map[string]string{
		"somebody who is refused":        "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n",
		"somebody whose body is missing": "POST /exec/ns/p/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"somebody without an end":        "GET /pods HTTP/1.1\r\nHost: ",
	} {
		conn := secure("")
		fmt.Fprint(conn, says)
		closed(who, conn)
	}
	first := dial()
	for range 20 {
		dial()
	}
	closed("the first of many", first)
	if code, body := b.get(b.client("admin"), "/healthz", ""); code != http.StatusOK {
		t.Errorf("beside strangers: %d %s", code, body)
	}
	closed("somebody who says nothing", dial())
	get()
}
