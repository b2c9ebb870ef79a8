package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

type failing struct{ t *testing.T }

func (f failing) Error(_ http.ResponseWriter, _ *http.Request, err error) { f.t.Error(err) }

// TestBehindKubelet: kubelets pass the connection on, and hang up on both sides as soon as one of them is done. Neither output nor
// the exit code is lost, also to a client that is still sending.
func TestBehindKubelet(t *testing.T) {
	output := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	s := serve(t, &backend{exec: func(_ context.Context, client Streams) error {
		if _, err := client.Stdout.Write(output[:1<<19]); err != nil {
			return err
		}
		if _, err := client.Stdout.Write(output[1<<19:]); err != nil {
			return err
		}
		return exitCode(9)
	}}, 0)
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := url.Parse(execURL(t, s, false))
		if err != nil {
			t.Error(err)
			return
		}
		proxy.NewUpgradeAwareHandler(u, nil, false, true, failing{t}).ServeHTTP(w, r)
	}))
	defer kubelet.Close()
	u, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, dial := range map[string]func() (remotecommand.Executor, error){
		"SPDY": func() (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
		},
		"WebSocket": func() (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, u.String())
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				e, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				in, typed := io.Pipe()
				go func() {
					for {
						if _, err := typed.Write(make([]byte, 1<<10)); err != nil {
							return
						}
					}
				}()
				var out bytes.Buffer
				err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: io.Discard})
				in.Close()
				var code interface{ ExitStatus() int }
				if !errors.As(err, &code) || code.ExitStatus() != 9 || !bytes.Equal(out.Bytes(), output) {
					t.Fatalf("%d bytes, %v", out.Len(), err)
				}
			}
		})
	}
}
