package preauth_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"monopod.dev/monopod/internal/kit/preauth"
)

const (
	// failAfter ends a test that fails.
	failAfter = time.Minute
	never     = time.Hour
	// short is a limit that is to be met.
	short = 100 * time.Millisecond
)

// server is an HTTPS server that knows who comes with the header User, waits while they are named "slow" until slow is
// closed, and answers 401 to anybody else.
type server struct {
	*testing.T
	*httptest.Server
	slow chan struct{}
	// asked ticks when a slow one is being asked.
	asked chan struct{}
}

func newServer(t *testing.T, limits preauth.Limits) *server {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{T: t, slow: make(chan struct{}), asked: make(chan struct{}, 1)}
	listener := preauth.New(l, limits)
	who := listener.Authenticator(authenticator.RequestFunc(s.who))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, ok, err := who.AuthenticateRequest(r)
		if !ok || err != nil {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, resp.User.GetName())
	}))
	s.Listener.Close()
	s.Listener = listener
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) who(r *http.Request) (*authenticator.Response, bool, error) {
	name := r.Header.Get("User")
	switch name {
	case "":
		return nil, false, nil
	case "broken":
		return nil, false, errors.New("nobody knows")
	case "slow":
		s.asked <- struct{}{}
		<-s.slow
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
}

// client is one connection to the server.
type client struct {
	*testing.T
	net.Conn
	roots *x509.CertPool
}

// dial connects from an address of this host's loopback.
func (s *server) dial(from string) *client {
	s.Helper()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		s.Fatal(err)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(s.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(failAfter)); err != nil {
		s.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &client{T: s.T, Conn: conn, roots: roots}
}

// secure is the connection after a TLS handshake.
func (c *client) secure(version uint16) *client {
	c.Helper()
	conn := tls.Client(c.Conn, &tls.Config{RootCAs: c.roots, ServerName: "127.0.0.1", MaxVersion: version})
	if err := conn.HandshakeContext(c.Context()); err != nil {
		c.Fatalf("TLS handshake: %v", err)
	}
	return &client{T: c.T, Conn: conn}
}

func (c *client) say(text string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.Fatal(err)
	}
}

// ask sends a request as the named user, and returns the answer's status.
func (c *client) ask(name string) int {
	c.Helper()
	c.say("GET / HTTP/1.1\r\nHost: x\r\nUser: " + name + "\r\n\r\n")
	return c.answer()
}

func (c *client) answer() int {
	c.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c.Conn), nil)
	if err != nil {
		c.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		c.Fatal(err)
	}
	return resp.StatusCode
}

// closed waits until the server has closed the connection.
func (c *client) closed() {
	c.Helper()
	if _, err := io.Copy(io.Discard, c.Conn); errors.Is(err, os.ErrDeadlineExceeded) {
		c.Fatal("the server keeps the connection")
	}
}

func TestStrangersAreClosed(t *testing.T) {
	handshake := preauth.Limits{Handshake: short, Header: never, Idle: never}
	header := preauth.Limits{Handshake: never, Header: short, Idle: never}
	idle := preauth.Limits{Handshake: never, Header: never, Idle: short}
	for name, tc := range map[string]struct {
		limits preauth.Limits
		do     func(*client)
	}{
		"who says nothing":         {handshake, func(*client) {}},
		"who begins the handshake": {handshake, func(c *client) { c.say("\x16\x03\x01\x02\x00\x01") }},
		"who asks nothing":         {header, begin("")},
		"whose header has no end":  {header, begin("GET / HTTP/1.1\r\nHost: ")},
		"who is refused":           {idle, func(c *client) { c.secure(0).ask("") }},
		"who cannot be looked up":  {idle, func(c *client) { c.secure(0).ask("broken") }},
		"who is anonymous":         {idle, func(c *client) { c.secure(0).ask(user.Anonymous) }},
		"whose body does not come": {idle, func(c *client) { c.secure(0).say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newServer(t, tc.limits).dial("127.0.0.1")
			tc.do(c)
			c.closed()
		})
	}
}

// begin shakes hands and says something. Where that takes too long, the server hangs up before it is done.
func begin(text string) func(*client) {
	return func(c *client) {
		conn := tls.Client(c.Conn, &tls.Config{RootCAs: c.roots, ServerName: "127.0.0.1"})
		if err := conn.HandshakeContext(c.Context()); err == nil {
			_, _ = io.WriteString(conn, text)
		}
	}
}

// After the handshake a client has the longer time for its first request, with any version of TLS.
func TestTimeForTheFirstRequest(t *testing.T) {
	s := newServer(t, preauth.Limits{Handshake: 3 * time.Second, Header: never, Idle: never})
	clients := map[string]*client{"TLS 1.2": s.dial("127.0.0.1").secure(tls.VersionTLS12), "TLS 1.3": s.dial("127.0.0.1").secure(tls.VersionTLS13)}
	s.dial("127.0.0.1").closed() // it came later, and its time is over
	for version, c := range clients {
		if code := c.ask("joe"); code != http.StatusOK {
			t.Errorf("%s: answered with %d", version, code)
		}
	}
}

func TestWhoIsKnownStays(t *testing.T) {
	s := newServer(t, preauth.Limits{Handshake: never, Header: never, Idle: short, PerSource: 1})
	known := s.dial("127.0.0.1").secure(0)
	if code := known.ask("joe"); code != http.StatusOK {
		t.Fatalf("answered with %d", code)
	}
	if code := known.ask(""); code != http.StatusUnauthorized {
		t.Errorf("a nameless request on a known connection is answered with %d", code)
	}
	for range 3 {
		stranger := s.dial("127.0.0.1").secure(0)
		stranger.ask("")
		stranger.closed()
	}
	if code := known.ask("joe"); code != http.StatusOK {
		t.Errorf("answered with %d", code)
	}
}

func TestSourcesAreBounded(t *testing.T) {
	s := newServer(t, preauth.Limits{Handshake: never, Header: never, Idle: never, PerSource: 3, Total: 5})
	first, second, third := s.dial("127.0.0.1"), s.dial("127.0.0.1"), s.dial("127.0.0.1")
	s.dial("127.0.0.1") // the fourth of the source
	first.closed()
	other := s.dial("127.0.0.2")
	s.dial("127.0.0.2")
	s.dial("127.0.0.3") // the sixth in all
	second.closed()
	// All others are there, and there is room again when one of them is known.
	if code := third.secure(0).ask("joe"); code != http.StatusOK {
		t.Errorf("the third: %d", code)
	}
	s.dial("127.0.0.3")
	if code := other.secure(0).ask("joe"); code != http.StatusOK {
		t.Errorf("one of another source: %d", code)
	}
}

func TestWhoWaitsLongestGoesFirst(t *testing.T) {
	s := newServer(t, preauth.Limits{Handshake: never, Header: never, Idle: never, PerSource: 2})
	first := s.dial("127.0.0.1").secure(0)
	second := s.dial("127.0.0.1").secure(0) // a handshake, so it has been accepted
	first.ask("")                           // now the second has waited longer
	third := s.dial("127.0.0.1")
	second.closed()

	first.say("GET / HTTP/1.1\r\nHost: x\r\nUser: slow\r\n\r\n")
	select {
	case <-s.asked:
	case <-time.After(failAfter):
		t.Fatal("the request does not come")
	}
	s.dial("127.0.0.1") // the first is being looked at, so the third has waited longest
	third.closed()
	close(s.slow)
	if code := first.answer(); code != http.StatusOK {
		t.Errorf("answered with %d", code)
	}
}
