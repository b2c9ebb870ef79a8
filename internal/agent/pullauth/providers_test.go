package pullauth

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is a shell command that answers with one credential.
func answer(more, auth string) string {
	return `echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",` + more + `,"auth":` + auth + `}'`
}

const oneAuth = `{"*.example.com":{"username":"u","password":"p"}}`

// bench has plugins that are shell scripts.
type bench struct {
	*testing.T
	dir, config string
}

// newBench writes the scripts, by name, and a configuration that has them in the order of their names.
func newBench(t *testing.T, more string, scripts ...string) *bench {
	t.Helper()
	b := &bench{T: t, dir: t.TempDir()}
	b.config = filepath.Join(b.dir, "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
	for i, s := range scripts {
		name := fmt.Sprintf("plugin%d", i)
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte("#!/bin/sh\n"+s+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		text += "- name: " + name + "\n  matchImages: ['*.example.com', '*.example.com:5000/team']\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n" +
			"  defaultCacheDuration: 1h\n  args: [one, two words]\n  env: [{name: WORD, value: hello}]\n" + more
	}
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) load(timeout time.Duration) *Providers {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := LoadProviders(ctx, ProviderConfig{File: b.config, BinDir: b.dir, Timeout: timeout})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cancel(); p.Wait() })
	return p
}

// ask is what the plugins give for an image.
func (b *bench) ask(p *Providers, image string) (string, error) {
	var ring Keyring
	err := p.Add(b.Context(), image, &ring)
	return said(ring.Lookup(image)), err
}

func (b *bench) file(name string) string {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.Fatal(err)
	}
	return string(raw)
}

func TestPluginIsAskedByTheProtocol(t *testing.T) {
	b := newBench(t, "", `cat > request; echo "$# $2 $WORD ${PATH:+path}" > call; `+answer(`"cacheKeyType":"Image"`, oneAuth))
	p := b.load(0)
	if got, err := b.ask(p, "r.example.com/team/app"); got != "u:p" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.example.com/team/app"}`; b.file("request") != want {
		t.Errorf("request %s, want %s", b.file("request"), want)
	}
	if got := b.file("call"); got != "2 two words hello path\n" {
		t.Errorf("called with %q", got)
	}
	// Other images are not its business.
	for _, image := range []string{"docker.io/library/busybox", "r.example.com:5000/other/app"} {
		if err := os.Remove(filepath.Join(b.dir, "request")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if got, err := b.ask(p, image); got != "" || err != nil {
			t.Errorf("%s: %q, %v", image, got, err)
		}
		if _, err := os.Stat(filepath.Join(b.dir, "request")); err == nil {
			t.Errorf("it was asked about %s", image)
		}
	}
}

func TestOrderOfPlugins(t *testing.T) {
	b := newBench(t, "",
		answer(`"cacheKeyType":"Global"`, `{"*.example.com":{"username":"first"},"r.example.com/team":{"username":"special"},"other.io":{"username":"other"}}`),
		answer(`"cacheKeyType":"Global"`, `{"*.example.com":{"username":"second"}}`),
		`echo broken plugin >&2; exit 3`)
	got, err := b.ask(b.load(0), "r.example.com/team/app")
	if got != "special: first: second:" {
		t.Errorf("credentials %q", got)
	}
	if err == nil || !strings.Contains(err.Error(), "credential provider plugin2") || !strings.Contains(err.Error(), "broken plugin") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
}

func TestCacheKeys(t *testing.T) {
	count := `echo x >> calls; `
	for name, tc := range map[string]struct {
		answer string
		calls  int // for three images, two of them of one registry, each asked for twice
	}{
		"image":                {answer(`"cacheKeyType":"Image"`, oneAuth), 3},
		"registry":             {answer(`"cacheKeyType":"Registry"`, oneAuth), 2},
		"global":               {answer(`"cacheKeyType":"Global"`, oneAuth), 1},
		"not at all":           {answer(`"cacheKeyType":"Global","cacheDuration":"0s"`, oneAuth), 6},
		"no credentials":       {answer(`"cacheKeyType":"Global"`, `null`), 1},
		"failures are not":     {`echo nonsense`, 6},
		"its own duration, 1h": {answer(`"cacheKeyType":"Image","cacheDuration":"1h"`, oneAuth), 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "", count+tc.answer)
			p := b.load(0)
			for range 2 {
				for _, image := range []string{"a.example.com/x", "a.example.com/y", "b.example.com/x"} {
					_, _ = b.ask(p, image)
				}
			}
			if calls := strings.Count(b.file("calls"), "x"); calls != tc.calls {
				t.Errorf("%d calls, want %d", calls, tc.calls)
			}
		})
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := cache{limit: 3}
	now := time.Now()
	for i := range 10 {
		c.put(fmt.Sprint("image ", i), map[string]credentialprovider.AuthConfig{}, time.Duration(10-i)*time.Minute, now)
	}
	keys := func(i int) map[credentialprovider.PluginCacheKeyType]string {
		return map[credentialprovider.PluginCacheKeyType]string{credentialprovider.ImagePluginCacheKeyType: fmt.Sprint("image ", i)}
	}
	// The first two expire last; each later one was pushed out by the next.
	for i, want := range map[int]bool{0: true, 1: true, 8: false, 9: true} {
		if _, ok := c.get(keys(i), now); ok != want {
			t.Errorf("entry %d is held: %v, want %v", i, ok, want)
		}
	}
	if _, ok := c.get(keys(0), now.Add(10*time.Minute)); ok {
		t.Error("an entry is used after its time")
	}
	c.put("image 11", nil, time.Hour, now.Add(time.Hour))
	if len(c.held) != 1 {
		t.Errorf("%d entries, want the expired ones gone", len(c.held))
	}
}

func TestBadAnswers(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"garbage":         {`echo topsecret`, "not a CredentialProviderResponse"},
		"nothing":         {`:`, "answer of 0 bytes"},
		"another version": {strings.Replace(answer(`"cacheKeyType":"Image"`, oneAuth), "k8s.io/v1", "k8s.io/v1beta1", 1), "v1beta1"},
		"another kind":    {`echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"Pod"}'`, `kind "Pod"`},
		"cache key":       {answer(`"cacheKeyType":"Pod"`, oneAuth), `cacheKeyType "Pod"`},
		"too long":        {`head -c 2000000 /dev/zero`, "longer than 1048576 bytes"},
		"bad key":         {answer(`"cacheKeyType":"Image"`, `{"/x":{"username":"u"}}`), `"/x"`},
		"long complaint":  {`head -c 100000 /dev/zero | tr '\0' y >&2; exit 1`, "yyy ..."},
		"killed":          {`kill -9 $$`, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "", tc.script)
			got, err := b.ask(b.load(0), "r.example.com/a")
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "topsecret") || len(err.Error()) > 2000 || got != "" {
				t.Errorf("%q, %.2000v, want an error with %q", got, err, tc.want)
			}
		})
	}
}

// TestHangingPlugin: it is killed with its children after its time, and who waits for another image is not held up.
func TestHangingPlugin(t *testing.T) {
	b := newBench(t, "", `if grep -q hang; then sleep 1000 & echo $! > child.tmp; mv child.tmp child; wait; fi; `+answer(`"cacheKeyType":"Image"`, oneAuth))
	p := b.load(5 * time.Second)
	var wg sync.WaitGroup
	hung := make(chan error, 2)
	for range 2 { // both wait for the same call
		wg.Go(func() { _, err := b.ask(p, "r.example.com/hang"); hung <- err })
	}
	if got, err := b.ask(p, "r.example.com/other"); got != "u:p" || err != nil {
		t.Errorf("beside a plugin that hangs: %q, %v", got, err)
	}
	wg.Wait()
	for range 2 {
		if err := <-hung; err == nil || !strings.Contains(err.Error(), "had not answered after 5s and was killed") {
			t.Errorf("a plugin that hangs: %v", err)
		}
	}
	var pid int
	if _, err := fmt.Sscan(b.file("child"), &pid); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its child lives on")
		}
	}
}

// zombie says that a process has ended and was not reaped by whoever has inherited it.
func zombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}

// TestWaiterGoes: a pod that is deleted does not wait for a plugin.
func TestWaiterGoes(t *testing.T) {
	b := newBench(t, "", `sleep 1000`)
	p := b.load(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Add(ctx, "r.example.com/a", &Keyring{}) }()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(time.Minute):
		t.Error("it still waits")
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"
	const good = "- name: p\n  matchImages: [a.io]\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: 1m\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"good":         {head + "providers:\n" + good, ""},
		"version":      {strings.Replace(head, "/v1", "/v1beta1", 1) + "providers:\n" + good, "v1beta1"},
		"no YAML":      {"{", "config.yaml"},
		"unknown key":  {head + "providers:\n" + good + "  color: red\n", "color"},
		"none":         {head, "providers is empty"},
		"twice":        {head + "providers:\n" + good + good, `providers[1].name "p" is there twice`},
		"name":         {head + "providers:\n" + strings.Replace(good, "name: p", "name: ../p", 1), `"../p"`},
		"no program":   {head + "providers:\n" + strings.Replace(good, "name: p", "name: q", 1), dir + "/q"},
		"no right":     {head + "providers:\n" + strings.Replace(good, "name: p", "name: plain", 1), dir + "/plain"},
		"no images":    {head + "providers:\n" + strings.Replace(good, "[a.io]", "[]", 1), "matchImages is empty"},
		"bad image":    {head + "providers:\n" + strings.Replace(good, "a.io", "/x", 1), "matchImages[0]"},
		"no duration":  {head + "providers:\n" + strings.Replace(good, "  defaultCacheDuration: 1m\n", "", 1), "defaultCacheDuration is missing"},
		"negative":     {head + "providers:\n" + strings.Replace(good, "1m", "-1m", 1), "-1m"},
		"protocol":     {head + "providers:\n" + strings.Replace(good, "k8s.io/v1\n", "k8s.io/v1alpha1\n", 1), "v1alpha1"},
		"variable":     {head + "providers:\n" + good + "  env: [{name: 'a=b'}]\n", `"a=b"`},
		"tokens":       {head + "providers:\n" + good + "  tokenAttributes: {serviceAccountTokenAudience: a}\n", "tokenAttributes"},
		"all together": {head + "providers:\n- name: q\n", "matchImages is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadProviders(t.Context(), ProviderConfig{File: path, BinDir: dir})
			if (err != nil) != (tc.want != "") || err != nil && (!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path)) {
				t.Errorf("error %v, want one that names the file and %q", err, tc.want)
			}
		})
	}
	if _, err := LoadProviders(t.Context(), ProviderConfig{File: "/no/such/file"}); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("no file: %v", err)
	}
}
