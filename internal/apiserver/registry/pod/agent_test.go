package pod_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	agentforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	agentcommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const timeout = 20 * time.Second

// agent is an agent's API: the kubelet's paths over TLS with client certificates, served with the streaming library that
// kubelets have. Its "containers" are functions: the command decides what is done with the streams.
type agent struct {
	*httptest.Server
	// asked holds the URIs of the requests.
	asked chan string
}

func newAgent(t *testing.T, certFile, keyFile, caFile string) *agent {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)

	a := &agent{asked: make(chan string, 64)}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", a.exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", a.attach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, req *http.Request) {
		agentforward.ServePortForward(w, req, a, req.PathValue("pod"), "", nil, timeout, timeout, agentforward.SupportedProtocols)
	})
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", log)
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a.asked <- req.URL.RequestURI()
		mux.ServeHTTP(w, req)
	}))
	a.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	a.EnableHTTP2 = true // as kubelets do: upgrades must ask for HTTP/1.1 by themselves
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

// lastAsked returns the URI of the only request since the last call, or "".
func (a *agent) lastAsked() string {
	select {
	case uri := <-a.asked:
		return uri
	default:
		return ""
	}
}

func (a *agent) exec(w http.ResponseWriter, req *http.Request) {
	opts, err := agentcommand.NewOptions(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	agentcommand.ServeExec(w, req, a, req.PathValue("pod"), "", req.PathValue("container"), req.URL.Query()["command"],
		opts, timeout, timeout, agentcommand.SupportedStreamingProtocols)
}

func (a *agent) attach(w http.ResponseWriter, req *http.Request) {
	opts, err := agentcommand.NewOptions(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	agentcommand.ServeAttach(w, req, a, req.PathValue("pod"), "", req.PathValue("container"),
		opts, timeout, timeout, agentcommand.SupportedStreamingProtocols)
}

// log answers with a line, and with a second one when the client is still there after it was flushed.
func log(w http.ResponseWriter, req *http.Request) {
	if req.PathValue("container") == "silent" {
		http.Error(w, "container silent has not been started", http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, "one line of", req.PathValue("container"))
	if req.URL.Query().Get("follow") == "true" {
		w.(http.Flusher).Flush()
		<-req.Context().Done() // until the client has seen the line and goes away
	}
}

// ExecInContainer implements the streaming library's Executor.
func (a *agent) ExecInContainer(_ context.Context, pod, _, container string, cmd []string, in io.Reader, out, stderr io.WriteCloser,
	tty bool, resize <-chan agentcommand.TerminalSize, _ time.Duration) error {
	fmt.Fprintf(out, "%s/%s %v tty=%v\n", pod, container, cmd, tty)
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "size":
		size := <-resize
		fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
	case "fail":
		fmt.Fprint(stderr, "no luck")
		return utilexec.CodeExitError{Err: errors.New("it ended"), Code: 7}
	}
	return nil
}

// AttachContainer implements the streaming library's Attacher.
func (a *agent) AttachContainer(_ context.Context, pod, _, container string, in io.Reader, out, _ io.WriteCloser,
	tty bool, _ <-chan agentcommand.TerminalSize) error {
	fmt.Fprintf(out, "attached to %s/%s tty=%v\n", pod, container, tty)
	_, err := io.Copy(out, in)
	return err
}

// PortForward implements the streaming library's PortForwarder.
func (a *agent) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	question := make([]byte, 4)
	if _, err := io.ReadFull(stream, question); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stream, "%s from %d", bytes.ToUpper(question), port)
	return err
}
