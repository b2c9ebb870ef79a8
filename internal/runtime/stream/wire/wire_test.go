package wire

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monopod.dev/monopod/internal/kit/ids"
)

func TestMain(m *testing.M) {
	// The clients': one ends with its next ping, the other a second after its connection could not be closed well.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"), goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

const patience = time.Minute

// backend is what a test makes of a request.
type backend struct {
	exec    func(ctx context.Context, client Streams) error
	forward func(ctx context.Context, port uint16, client Duplex) error
}

func (b *backend) Exec(ctx context.Context, _ *cri.ExecRequest, client Streams) error {
	return b.exec(ctx, client)
}

func (b *backend) PortForward(ctx context.Context, _ ids.SandboxID, port uint16, client Duplex) error {
	return b.forward(ctx, port, client)
}

// serve starts a server, which has ended with all that it started when the test is over.
func serve(t *testing.T, b *backend, idle time.Duration) *Server {
	t.Helper()
	s, err := NewServer(Config{Address: netip.MustParseAddr("127.0.0.1"), Idle: idle, Backend: b, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.look, s.header = 20*time.Millisecond, 10*time.Minute
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// shout answers stdin in capitals, says "err" and the size of the window, and ends with a code.
func shout(_ context.Context, client Streams) error {
	in, err := io.ReadAll(client.Stdin)
	if err != nil {
		return err
	}
	if client.Stderr != nil {
		fmt.Fprint(client.Stderr, "err")
	}
	if client.Sizes != nil {
		size := <-client.Sizes
		fmt.Fprintf(client.Stdout, "%dx%d ", size.Width, size.Height)
	}
	fmt.Fprint(client.Stdout, strings.ToUpper(string(in)))
	return exitCode(7)
}

type exitCode int

func (c exitCode) Error() string   { return fmt.Sprintf("exit code %d", int(c)) }
func (c exitCode) ExitStatus() int { return int(c) }

func execURL(t *testing.T, s *Server, tty bool) string {
	t.Helper()
	u, err := s.Exec(&cri.ExecRequest{Stdin: true, Stdout: true, Stderr: !tty, Tty: tty})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// wantStatus holds what came over the error stream against the code 7.
func wantStatus(t *testing.T, raw string, structured bool) {
	t.Helper()
	if !structured {
		if raw != "exit code 7" {
			t.Errorf("error stream %q", raw)
		}
		return
	}
	var st metav1.Status
	if err := json.Unmarshal([]byte(raw), &st); err != nil || st.Status != "Failure" || st.Reason != "NonZeroExitCode" || len(st.Details.Causes) != 1 ||
		st.Details.Causes[0] != (metav1.StatusCause{Type: "ExitCode", Message: "7"}) {
		t.Errorf("error stream %q, %v", raw, err)
	}
}

func TestSPDYVersions(t *testing.T) {
	s := serve(t, &backend{exec: shout}, 0)
	for version, has := range map[string]struct{ sizes, structured bool }{
		remotecommand.StreamProtocolV4Name: {true, true}, remotecommand.StreamProtocolV3Name: {true, false},
		remotecommand.StreamProtocolV2Name: {}, remotecommand.StreamProtocolV1Name: {},
	} {
		for _, tty := range []bool{false, true} {
			if tty && !has.sizes {
				continue
			}
			t.Run(fmt.Sprint(version, " tty ", tty), func(t *testing.T) {
				conn := dialSPDY(t, execURL(t, s, tty), "x.unknown", version)
				names := []string{"error", "stdin", "stdout"}
				if tty {
					names = append(names, "resize")
				} else {
					names = append(names, "stderr")
				}
				streams := map[string]httpstream.Stream{}
				for _, name := range names {
					stream, err := conn.CreateStream(http.Header{"Streamtype": {name}})
					if err != nil {
						t.Fatal(err)
					}
					streams[name] = stream
				}
				if tty {
					fmt.Fprint(streams["resize"], `{"Width":80,"Height":25}`)
				}
				fmt.Fprint(streams["stdin"], "abc")
				streams["stdin"].Close()
				got := map[string]string{}
				for _, name := range []string{"stdout", "stderr", "error"} {
					if streams[name] != nil {
						raw, err := io.ReadAll(streams[name])
						if err != nil {
							t.Error(err)
						}
						got[name] = string(raw)
					}
				}
				if want := map[bool]string{false: "ABC", true: "80x25 ABC"}[tty]; got["stdout"] != want || !tty && got["stderr"] != "err" {
					t.Errorf("streams %q", got)
				}
				wantStatus(t, got["error"], has.structured)
			})
		}
	}
}

// dialSPDY upgrades a request to SPDY.
func dialSPDY(t *testing.T, raw string, protocols ...string) httpstream.Connection {
	t.Helper()
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range protocols {
		req.Header.Add(httpstream.HeaderProtocolVersion, p)
	}
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rt.NewConnection(resp)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get(httpstream.HeaderProtocolVersion); got != protocols[len(protocols)-1] {
		t.Errorf("protocol %q", got)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestWebSocketVersions(t *testing.T) {
	s := serve(t, &backend{exec: shout}, 0)
	for _, c := range []struct {
		protocol           string
		base64, structured bool
	}{
		{"v5.channel.k8s.io", false, true}, {"v4.channel.k8s.io", false, true}, {"v4.base64.channel.k8s.io", true, true},
		{"channel.k8s.io", false, false}, {"base64.channel.k8s.io", true, false}, {"", false, false},
	} {
		t.Run(c.protocol, func(t *testing.T) {
			closable := c.protocol == "v5.channel.k8s.io"
			b := &backend{exec: func(ctx context.Context, client Streams) error {
				if !closable { // there stdin has no end, only bytes
					client.Stdin = io.LimitReader(client.Stdin, 3)
				}
				return shout(ctx, client)
			}}
			s.cfg.Backend = b
			ws := dialWebSocket(t, execURL(t, s, true), c.protocol)
			if ws.Subprotocol() != c.protocol {
				t.Errorf("protocol %q", ws.Subprotocol())
			}
			messages := []string{"\x04" + `{"Width":80,`, "\x04" + `"Height":25}`, "\x00ab", "", "\x07nobody reads this", "\x00c"}
			kind := websocket.BinaryMessage
			if c.base64 {
				messages = []string{"4eyJXaWR0aCI6ODAsIkhlaWdodCI6MjV9", "0YWI=", "", "0Yw=="}
				kind = websocket.TextMessage
			}
			if closable {
				messages = append(messages, "\xff\x00")
			}
			for _, m := range messages {
				if err := ws.WriteMessage(kind, []byte(m)); err != nil {
					t.Fatal(err)
				}
			}
			got := map[byte]string{}
			for {
				k, m, err := ws.ReadMessage()
				if err != nil {
					if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
						t.Error(err)
					}
					break
				}
				if k != kind {
					t.Errorf("a message of type %d", k)
				}
				got[m[0]] += string(m[1:])
			}
			if c.base64 {
				if got['1'] == "" || !strings.HasPrefix(decode64(t, got['1']), "80x25 ") || !strings.HasSuffix(decode64(t, got['1']), "ABC") {
					t.Errorf("channels %q", got)
				}
				wantStatus(t, decode64(t, got['3']), c.structured)
				return
			}
			if got[1] != "80x25 ABC" {
				t.Errorf("channels %q", got)
			}
			wantStatus(t, got[3], c.structured)
		})
	}
}

func dialWebSocket(t *testing.T, raw, protocol string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{}
	if protocol != "" {
		d.Subprotocols = []string{"x.unknown", protocol}
	}
	// The client of a proxy between has another name for the host, and may have an origin.
	ws, _, err := d.Dial(strings.Replace(raw, "http:", "ws:", 1), http.Header{"Host": {"node.example:10250"}, "Origin": {"https://dashboard.example"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	_ = ws.SetReadDeadline(time.Now().Add(patience))
	return ws
}

func TestRefusedRequests(t *testing.T) {
	s := serve(t, &backend{}, 0)
	get := func(method, raw string, header http.Header) *http.Response {
		req, err := http.NewRequest(method, raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		return resp
	}
	spdyHeader := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	wsHeader := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}}
	with := func(h http.Header, key, value string) http.Header {
		h = h.Clone()
		h.Set(key, value)
		return h
	}
	for _, c := range []struct {
		what   string
		header http.Header
		code   int
	}{
		{"no upgrade", http.Header{}, http.StatusBadRequest},
		{"SPDY without a protocol", spdyHeader, http.StatusBadRequest},
		{"SPDY with another protocol", with(spdyHeader, "X-Stream-Protocol-Version", "v9.channel.k8s.io"), http.StatusForbidden},
		{"WebSocket with another protocol", with(wsHeader, "Sec-Websocket-Protocol", "v9.channel.k8s.io"), http.StatusForbidden},
	} {
		u := execURL(t, s, false)
		resp := get(http.MethodGet, u, c.header)
		if resp.StatusCode != c.code || resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %s", c.what, resp.Status)
		}
		if again := get(http.MethodGet, u, c.header); again.StatusCode != http.StatusNotFound {
			t.Errorf("%s: a second time: %s", c.what, again.Status)
		}
	}
	u := execURL(t, s, false)
	if resp := get(http.MethodPut, u, http.Header{}); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %s", resp.Status)
	}
	for _, wrong := range []string{strings.Replace(u, "/exec/", "/attach/", 1), u + "x", u[:len(u)-1], strings.Replace(u, "/exec/", "/", 1)} {
		if resp := get(http.MethodGet, wrong, http.Header{}); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", wrong, resp.Status)
		}
	}
	if _, err := NewServer(Config{Address: netip.MustParseAddr("0.0.0.0")}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("an address of the network: %v", err)
	}
}

// TestClientGone: a session ends with its client, also while neither side is read or written.
func TestClientGone(t *testing.T) {
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	s := serve(t, &backend{exec: func(ctx context.Context, _ Streams) error {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	}}, 0)
	want := func(t *testing.T, cause error) {
		t.Helper()
		select {
		case err := <-ended:
			if !errors.Is(err, cause) {
				t.Errorf("it ended for %v, want %v", err, cause)
			}
		case <-time.After(patience):
			t.Error("the session goes on")
		}
	}
	t.Run("SPDY", func(t *testing.T) {
		conn := dialSPDY(t, execURL(t, s, false), remotecommand.StreamProtocolV4Name)
		for _, name := range []string{"error", "stdin", "stdout", "stderr"} {
			if _, err := conn.CreateStream(http.Header{"Streamtype": {name}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.CreateStream(http.Header{"Streamtype": {"stdin"}}); err == nil {
			t.Error("a second stdin was accepted")
		}
		<-begun
		conn.Close()
		want(t, ErrClientGone)
	})
	t.Run("WebSocket with stdin that nobody reads", func(t *testing.T) {
		ws := dialWebSocket(t, execURL(t, s, false), "v5.channel.k8s.io")
		<-begun
		flood(t, ws)
		ws.UnderlyingConn().Close()
		want(t, ErrClientGone)
	})
	t.Run("a broken protocol", func(t *testing.T) {
		ws := dialWebSocket(t, execURL(t, s, false), "v5.channel.k8s.io")
		<-begun
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte("\xff\x00\x01")); err != nil {
			t.Error(err)
		}
		want(t, ErrClientGone)
	})
}

// TestServerEnds: what is open is cut, and nothing of it is left when Serve returns.
func TestServerEnds(t *testing.T) {
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	var ws *websocket.Conn
	t.Run("server", func(t *testing.T) {
		s := serve(t, &backend{exec: func(ctx context.Context, _ Streams) error {
			begun <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		}}, 0)
		var err error
		ws, _, err = websocket.DefaultDialer.Dial(strings.Replace(execURL(t, s, false), "http:", "ws:", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		<-begun
	})
	select {
	case err := <-ended:
		if !errors.Is(err, ErrServerEnds) {
			t.Error(err)
		}
	default:
		t.Error("the server did not wait for its sessions")
	}
	ws.Close()
}

// flood sends to stdin until the connection takes no more.
func flood(t *testing.T, ws *websocket.Conn) {
	t.Helper()
	message := bytes.Repeat([]byte{0}, 64<<10)
	for {
		_ = ws.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		err := ws.WriteMessage(websocket.BinaryMessage, message)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestIdle(t *testing.T) {
	ended := make(chan error, 1)
	s := serve(t, &backend{exec: func(ctx context.Context, _ Streams) error {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	}}, time.Millisecond)
	dialWebSocket(t, execURL(t, s, false), "v5.channel.k8s.io")
	select {
	case err := <-ended:
		if !errors.Is(err, ErrIdle) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("an idle session goes on")
	}
}

// TestReset: a forwarded connection that the client resets ends, while its others go on; one that it half-closes goes on.
func TestReset(t *testing.T) {
	ended := make(chan error, 2)
	s := serve(t, &backend{forward: func(_ context.Context, _ uint16, client Duplex) error {
		_, err := io.Copy(io.Discard, client)
		fmt.Fprint(client, "rest")
		ended <- err
		return err
	}}, 0)
	u, err := s.PortForward("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	conn := dialSPDY(t, u, "portforward.k8s.io")
	open := func(id string) (data, problems httpstream.Stream) {
		header := http.Header{"Port": {"80"}, "Requestid": {id}, "Streamtype": {"error"}}
		problems, err := conn.CreateStream(header)
		if err != nil {
			t.Fatal(err)
		}
		header.Set("streamType", "data")
		if data, err = conn.CreateStream(header); err != nil {
			t.Fatal(err)
		}
		return data, problems
	}
	first, _ := open("1")
	second, problems := open("2")
	if err := first.Reset(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, errReset) {
		t.Errorf("a reset is %v", err)
	}
	second.Close()
	if err := <-ended; err != nil {
		t.Errorf("a half-close is %v", err)
	}
	if got, err := io.ReadAll(second); err != nil || string(got) != "rest" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := io.ReadAll(problems); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	for _, header := range []http.Header{{"Port": {"0"}}, {"Port": {"65536"}}, {"Port": {"80"}, "Streamtype": {"other"}}} {
		if _, err := conn.CreateStream(header); err == nil {
			t.Errorf("a stream with headers %v was accepted", header)
		}
	}
}

func decode64(t *testing.T, s string) (text string) {
	t.Helper()
	for i := 0; i < len(s); i += 4 { // several messages' texts, each of whole groups
		raw, err := base64.StdEncoding.DecodeString(s[i : i+4])
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		text += string(raw)
	}
	return text
}
