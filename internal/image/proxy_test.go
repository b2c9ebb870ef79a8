package image_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"monopod.dev/monopod/test/registry"
)

// A proxy that the environment names is asked for every registry but those of NO_PROXY. It takes a process of its own:
// Go reads the environment once.
func TestProxyFromTheEnvironment(t *testing.T) {
	r := registry.New(t)
	b := build(t, two("", "by proxy"))
	r.Push("a/two", "v1", b)
	var mu sync.Mutex
	asked := map[string]int{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		asked[req.URL.Host]++
		mu.Unlock()
		at := *req.URL
		at.Host = r.Addr // registry.example is known to the proxy alone
		resp, err := http.DefaultTransport.RoundTrip(&http.Request{Method: req.Method, URL: &at, Header: req.Header})
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body) //nolint:errcheck // the client may be gone
	}))
	t.Cleanup(proxy.Close)
	f := open(t)
	dir := filepath.Join(f.cfg.RegistryConfigDir, "registry.example")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte("server = \"http://registry.example\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	pull := func(noProxy string) (string, error) {
		f.close()
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childRoot+"="+f.cfg.Root, childHosts+"="+f.cfg.RegistryConfigDir, childPull+"=registry.example/a/two:v1",
			"HTTP_PROXY="+proxy.URL, "NO_PROXY="+noProxy)
		out, err := cmd.CombinedOutput()
		f.reopen()
		return string(out), err
	}
	if out, err := pull("elsewhere.example"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	img, err := f.Get(f.ctx, "registry.example/a/two:v1")
	if err != nil || f.read(img, "etc/shared") != "by proxy" {
		t.Errorf("%+v %v", img, err)
	}
	if len(asked) != 1 || asked["registry.example"] == 0 {
		t.Errorf("the proxy was asked for %v", asked)
	}
	before := asked["registry.example"]
	if out, err := pull("registry.example"); err == nil || !strings.Contains(out, "registry.example") {
		t.Errorf("a host of NO_PROXY, which nobody knows: %v: %s", err, out)
	}
	if asked["registry.example"] != before {
		t.Error("the proxy was asked for a host of NO_PROXY")
	}
}
