package runtime_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/ns"
)

// serveIn serves connections to a port of the loopback device in a sandbox, and returns the port.
func (n *node) serveIn(sandbox, address string, serve func(*net.TCPConn)) int {
	n.Helper()
	var l net.Listener
	listen := func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}
	if sandbox == "" {
		n.check(listen())
	} else {
		n.check(ns.Run(filepath.Join(n.dir, "run", "sandboxes", sandbox, "ns", "net"), ns.Network, listen))
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	n.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().(*net.TCPAddr).Port
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func (n *node) portForward(sandbox string, ports ...int32) string {
	n.Helper()
	resp, err := n.rt.PortForward(n.ctx, &cri.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	n.check(err)
	return resp.GetUrl()
}

// forwarders are the two ways in which kubectl and crictl forward.
func forwarders(t *testing.T, f func(t *testing.T, dial func(url string) httpstream.Dialer)) {
	for name, dial := range map[string]func(*url.URL) (httpstream.Dialer, error){
		"SPDY": func(u *url.URL) (httpstream.Dialer, error) {
			transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
			return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), err
		},
		"SPDY in WebSocket": func(u *url.URL) (httpstream.Dialer, error) {
			return portforward.NewSPDYOverWebsocketDialer(u, &rest.Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f(t, func(raw string) httpstream.Dialer {
				u, err := url.Parse(raw)
				if err != nil {
					t.Fatal(err)
				}
				d, err := dial(u)
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
	}
}

// forwarded forwards a free local port and returns its address. The forwarder ends with the test.
func (n *node) forwarded(t *testing.T, d httpstream.Dialer, port int) (address string, ended <-chan error) {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	n.check(err)
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	ports, err := f.GetPorts()
	n.check(err)
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), done
}

// exchange sends everything, says so, and returns the answer.
func exchange(address string, data []byte) ([]byte, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	return io.ReadAll(c)
}

func TestPortForward(t *testing.T) {
	n := newNode(t)
	sb := n.run("forward")
	digest := n.serveIn(sb, "127.0.0.1:0", func(c *net.TCPConn) {
		h := sha256.New()
		_, _ = io.Copy(h, c) // to the client's half-close
		_, _ = c.Write(h.Sum(nil))
	})
	echoes := n.serveIn(sb, "127.0.0.1:0", echo)
	echoes6 := n.serveIn(sb, "[::1]:0", echo)
	hangsUp := n.serveIn(sb, "127.0.0.1:0", func(c *net.TCPConn) { fmt.Fprint(c, "bye") })
	onHost := n.serveIn("", "127.0.0.1:0", echo)
	forwarders(t, func(t *testing.T, dial func(string) httpstream.Dialer) {
		t.Run("half-close and many bytes", func(t *testing.T) {
			address, _ := n.forwarded(t, dial(n.portForward(sb)), digest)
			data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
			got, err := exchange(address, data)
			if want := sha256.Sum256(data); err != nil || !bytes.Equal(got, want[:]) {
				t.Errorf("%x, %v", got, err)
			}
		})
		t.Run("many at once", func(t *testing.T) {
			address, _ := n.forwarded(t, dial(n.portForward(sb)), echoes)
			var work sync.WaitGroup
			for i := range 30 {
				work.Go(func() {
					data := bytes.Repeat(fmt.Appendf(nil, "%4d", i), 10000)
					if got, err := exchange(address, data); err != nil || !bytes.Equal(got, data) {
						t.Errorf("connection %d: %d bytes, %v", i, len(got), err)
					}
				})
			}
			work.Wait()
		})
		t.Run("IPv6, and a pod that hangs up first", func(t *testing.T) {
			address, _ := n.forwarded(t, dial(n.portForward(sb)), echoes6)
			if got, err := exchange(address, []byte("six")); err != nil || string(got) != "six" {
				t.Errorf("%q, %v", got, err)
			}
			address, _ = n.forwarded(t, dial(n.portForward(sb)), hangsUp)
			c, err := net.Dial("tcp", address)
			n.check(err)
			defer c.Close()
			if got, err := io.ReadAll(c); err != nil || string(got) != "bye" {
				t.Errorf("%q, %v", got, err)
			}
		})
		t.Run("nobody listens", func(t *testing.T) {
			conn, _, err := dial(n.portForward(sb)).Dial(portforward.PortForwardProtocolV1Name)
			n.check(err)
			defer conn.Close()
			if message := problem(t, conn, 1); !strings.Contains(message, "127.0.0.1:1") || !strings.Contains(message, "refused") {
				t.Errorf("error %q", message)
			}
		})
		t.Run("another port than those asked for", func(t *testing.T) {
			conn, _, err := dial(n.portForward(sb, int32(echoes))).Dial(portforward.PortForwardProtocolV1Name)
			n.check(err)
			defer conn.Close()
			header := http.Header{"Port": {fmt.Sprint(digest)}, "Streamtype": {"error"}, "Requestid": {"1"}}
			if _, err := conn.CreateStream(header); err == nil {
				t.Error("it was served")
			}
		})
		t.Run("node's network", func(t *testing.T) {
			cfg := n.sandboxConfig("host" + strings.ReplaceAll(t.Name(), "/", "-"))
			cfg.Linux.SecurityContext.NamespaceOptions.Network, cfg.Hostname = cri.NamespaceMode_NODE, ""
			resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
			n.check(err)
			address, _ := n.forwarded(t, dial(n.portForward(resp.GetPodSandboxId())), onHost)
			if got, err := exchange(address, []byte("host")); err != nil || string(got) != "host" {
				t.Errorf("%q, %v", got, err)
			}
		})
	})
	t.Run("WebSocket channels", func(t *testing.T) { n.forwardChannels(t, sb, echoes, hangsUp) })
	t.Run("refused", func(t *testing.T) {
		for _, port := range []int32{0, -1, 65536} {
			_, err := n.rt.PortForward(n.ctx, &cri.PortForwardRequest{PodSandboxId: sb, Port: []int32{80, port}})
			wantCode(t, err, codes.InvalidArgument, "port[1]", fmt.Sprint(port))
		}
		_, err := n.rt.PortForward(n.ctx, &cri.PortForwardRequest{PodSandboxId: strings.Repeat("a", 64)})
		wantCode(t, err, codes.NotFound)
		_, err = n.rt.PortForward(n.ctx, &cri.PortForwardRequest{})
		wantCode(t, err, codes.InvalidArgument)
		u := n.portForward(sb)
		_, err = n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb})
		n.check(err)
		_, err = n.rt.PortForward(n.ctx, &cri.PortForwardRequest{PodSandboxId: sb})
		wantCode(t, err, codes.FailedPrecondition, sb, "NOTREADY")
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
		n.check(err)
		parsed, err := url.Parse(u)
		n.check(err)
		conn, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, parsed).Dial(portforward.PortForwardProtocolV1Name)
		n.check(err)
		defer conn.Close()
		if message := problem(t, conn, echoes); !strings.Contains(message, "NOTREADY") {
			t.Errorf("a sandbox that was stopped meanwhile: %q", message)
		}
	})
}

// problem forwards one connection and returns what comes over its error stream.
func problem(t *testing.T, conn httpstream.Connection, port int) string {
	t.Helper()
	header := http.Header{"Port": {fmt.Sprint(port)}, "Streamtype": {"error"}, "Requestid": {"1"}}
	problems, err := conn.CreateStream(header)
	if err != nil {
		t.Fatal(err)
	}
	header.Set("streamType", "data")
	if _, err := conn.CreateStream(header); err != nil {
		t.Fatal(err)
	}
	message, err := io.ReadAll(problems)
	if err != nil {
		t.Fatal(err)
	}
	return string(message)
}

// forwardChannels forwards two ports over one WebSocket, in the protocol with channels.
func (n *node) forwardChannels(t *testing.T, sb string, echoes, hangsUp int) {
	ctx, cancel := context.WithTimeout(n.ctx, patience())
	defer cancel()
	u := strings.Replace(n.portForward(sb, int32(echoes), int32(hangsUp), 1), "http:", "ws:", 1)
	d := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}
	ws, _, err := d.DialContext(ctx, u, nil)
	n.check(err)
	defer ws.Close()
	n.check(ws.SetReadDeadline(time.Now().Add(patience())))
	n.check(ws.WriteMessage(websocket.BinaryMessage, []byte("\x00hello")))
	got := make([]string, 6)
	for got[0] != string(binary.LittleEndian.AppendUint16(nil, uint16(echoes)))+"hello" || !strings.HasSuffix(got[2], "bye") || !strings.Contains(got[5], "refused") {
		_, message, err := ws.ReadMessage()
		if err != nil {
			t.Fatalf("%v; channels %q", err, got)
		}
		got[message[0]] += string(message[1:])
	}
	if got[1] != got[0][:2] || got[3] != got[2][:2] {
		t.Errorf("channels %q", got)
	}
	_, resp, err := websocket.DefaultDialer.DialContext(ctx, strings.Replace(n.portForward(sb), "http:", "ws:", 1), nil)
	if !errors.Is(err, websocket.ErrBadHandshake) || resp.StatusCode != http.StatusForbidden {
		t.Errorf("no port: %v, %v", resp, err)
	}
}
