package apiserver_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/kit/preauth"
)

// dial connects to the API's port, and says nothing.
func (i *instance) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", i.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // it only ends a test that fails
		t.Fatal(err)
	}
	return conn
}

// closed waits until the server has closed a connection.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server keeps the connection")
	}
}

// Who connects and does not authenticate is cut off, by HTTP/1.1 and HTTP/2; who has done so is left alone.
func TestStrangersAreCutOff(t *testing.T) {
	cfg := newConfig(t)
	const limit = 5 * time.Second // long enough for a handshake on a slow machine
	cfg.Strangers = preauth.Limits{Handshake: limit, Header: limit, Idle: limit / 10, PerSource: 8}
	i := start(t, cfg)
	defer i.end(t)
	get := held(t, i)
	get()
	for protocol, begin := range map[string]string{
		"http/1.1": "GET /api HTTP/1.1\r\nHost: x\r\n\r\n",                                 // it is answered with 401
		"h2":       "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", // the preface, with empty settings
	} {
		conn := tls.Client(i.dial(t), &tls.Config{RootCAs: authority(i), ServerName: "127.0.0.1", NextProtos: []string{protocol}})
		if _, err := io.WriteString(conn, begin); err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		closed(t, conn)
	}
	for range 20 {
		i.dial(t)
	}
	// All of those from this address say nothing: the first of them have gone for the last, and there is a place for others.
	if _, err := i.admin(t).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("beside strangers: %v", err)
	}
	closed(t, i.dial(t))
	if code := get(); code != http.StatusOK {
		t.Errorf("who is known is answered with %d", code)
	}
}

// held is a connection on which the administrator asks for the namespace default, each time that get is called.
func held(t *testing.T, i *instance) (get func() (status int)) {
	t.Helper()
	admin := i.AdminConfig()
	pair, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(i.dial(t), &tls.Config{RootCAs: authority(i), ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair}})
	answers := bufio.NewReader(conn)
	return func() int {
		t.Helper()
		if _, err := io.WriteString(conn, "GET /api/v1/namespaces/default HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
}

func authority(i *instance) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(i.AdminConfig().CAData)
	return pool
}
