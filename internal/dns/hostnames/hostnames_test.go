package hostnames

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
)

func crash() error { return errors.New("crash") }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	plain = "search lan\nnameserver 192.0.2.1\n"
	block = "# monopod t0: begin\n# Names of cluster.local; all others are asked of the servers below. \"monopod dns disable\" takes this away.\nnameserver 10.43.0.10\n# monopod t0: end\n"
)

// fakeResolved notes what systemd-resolved would have.
type fakeResolved map[int]string

func (f fakeResolved) Set(_ context.Context, link int, domain string, servers []netip.Addr) error {
	f[link] = fmt.Sprint(domain, servers)
	return nil
}

func (f fakeResolved) Revert(_ context.Context, link int) error {
	delete(f, link)
	return nil
}

type rig struct {
	*testing.T
	*Host
	resolved fakeResolved
}

func newRig(t *testing.T, content string) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{T: t, resolved: fakeResolved{}}
	r.Host = New(Config{
		Dir: filepath.Join(dir, "dns"), ResolvConf: filepath.Join(dir, "etc", "resolv.conf"), Owner: "t0", Domain: "cluster.local",
		Servers: []netip.Addr{netip.MustParseAddr("10.43.0.10")}, Link: "t0-dns", Resolved: r.resolved,
	})
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.put(content)
	return r
}

// put replaces the file, as programs do.
func (r *rig) put(content string) {
	r.Helper()
	next := r.cfg.ResolvConf + ".new"
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o644), os.Rename(next, r.cfg.ResolvConf)); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) is(what, want string) {
	r.Helper()
	raw, err := os.ReadFile(r.cfg.ResolvConf)
	if err != nil || string(raw) != want {
		r.Errorf("%s:\n%s, %v; want\n%s", what, raw, err, want)
	}
}

func (r *rig) enable() State {
	r.Helper()
	s, err := r.Enable(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *rig) disable() State {
	r.Helper()
	s, err := r.Disable(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func TestFile(t *testing.T) {
	r := newRig(t, plain)
	if s := r.disable(); s.Changed {
		t.Errorf("nothing was disabled: %+v", s)
	}
	if s, err := r.Status(); err != nil || s.Enabled || s.How != ByFile {
		t.Errorf("before: %+v, %v", s, err)
	}
	if s := r.enable(); !s.Changed || !s.Enabled || s.How != ByFile || s.Place != r.cfg.ResolvConf {
		t.Errorf("enabled: %+v", s)
	}
	r.is("enabled", block+plain)
	if s := r.enable(); s.Changed {
		t.Errorf("enabled again: %+v", s)
	}
	r.is("enabled again", block+plain)
	if s, err := r.Status(); err != nil || !s.Enabled || s.Waits {
		t.Errorf("enabled: %+v, %v", s, err)
	}
	if st, err := os.Stat(r.cfg.ResolvConf); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if s := r.disable(); !s.Changed {
		t.Errorf("disabled: %+v", s)
	}
	r.is("disabled", plain)
	if s := r.disable(); s.Changed {
		t.Errorf("disabled again: %+v", s)
	}
}

func TestALinkIsFollowed(t *testing.T) {
	r := newRig(t, plain)
	real := filepath.Join(t.TempDir(), "run.conf")
	if err := errors.Join(os.Rename(r.cfg.ResolvConf, real), os.Symlink(real, r.cfg.ResolvConf)); err != nil {
		t.Fatal(err)
	}
	r.enable()
	r.is("enabled", block+plain)
	if st, err := os.Lstat(r.cfg.ResolvConf); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st.Mode(), err)
	}
	r.disable()
	r.is("disabled", plain)
}

func TestBlock(t *testing.T) {
	r := newRig(t, plain)
	other := "# monopod t1: begin\nnameserver 10.44.0.10\n# monopod t1: end\n"
	for what, c := range map[string]struct{ raw, without string }{
		"nothing":             {"", ""},
		"without one":         {plain, plain},
		"with one":            {block + plain, plain},
		"in the middle":       {"options x\n" + block + plain, "options x\n" + plain},
		"twice":               {block + plain + block, plain},
		"another node's":      {other + block + plain, other + plain},
		"of another server":   {"# monopod t0: begin\nnameserver 10.99.0.10\n# monopod t0: end\n" + plain, plain},
		"its end cut off":     {"# monopod t0: begin\n# Names of x\nnameserver 10.43.0.10\n" + plain, plain},
		"only its begin":      {"# monopod t0: begin\n" + plain, plain},
		"no newline":          {block + "nameserver 192.0.2.1", "nameserver 192.0.2.1"},
		"nothing but a block": {block, ""},
	} {
		if got := string(r.withoutBlock([]byte(c.raw))); got != c.without {
			t.Errorf("%s: without it\n%s\nwant\n%s", what, got, c.without)
		}
		if got := string(r.withBlock([]byte(c.raw))); got != block+c.without {
			t.Errorf("%s: with it\n%s", what, got)
		}
	}
}

func TestResolved(t *testing.T) {
	harness.NewNetwork(t)
	r := newRig(t, "nameserver 127.0.0.53\noptions edns0\n")
	if s := r.enable(); s.How != ByResolved || !s.Waits || len(r.resolved) != 0 {
		t.Errorf("without an interface: %+v, %v", s, r.resolved)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "t0-dns"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName("t0-dns")
	if err != nil {
		t.Fatal(err)
	}
	if s := r.enable(); s.Waits || r.resolved[l.Attrs().Index] != "cluster.local[10.43.0.10]" {
		t.Errorf("with one: %+v, %v", s, r.resolved)
	}
	r.is("the file", "nameserver 127.0.0.53\noptions edns0\n")
	// The machine's programs ask others from now on.
	r.put(plain)
	r.enable()
	r.is("by the file", block+plain)
	if len(r.resolved) != 0 {
		t.Errorf("systemd-resolved has %v still", r.resolved)
	}
	r.disable()
	r.is("disabled", plain)
}

// A crash in any line is mended by the same command, and by the other one.
func TestCrashes(t *testing.T) {
	for _, c := range []struct {
		point string
		by    func(*rig) error
	}{
		{"dns/host/wished", func(r *rig) error { _, err := r.Enable(r.Context()); return err }},
		{"dns/host/unwished", func(r *rig) error { r.enable(); _, err := r.Disable(r.Context()); return err }},
	} {
		for _, then := range []string{"enable", "disable"} {
			t.Run(c.point+" "+then, func(t *testing.T) {
				r := newRig(t, plain)
				r.enable()
				r.disable()
				disarm := armed(c.point, func() error { return c.by(r) })
				if disarm == nil {
					t.Fatal("it did not fail")
				}
				if then == "enable" {
					r.enable()
					r.is("enabled", block+plain)
				}
				r.disable()
				r.is("disabled", plain)
			})
		}
	}
}

// armed does something that fails at a point.
func armed(point string, do func() error) error {
	defer failpoint.Arm(point, crash)()
	return do()
}

func TestKeep(t *testing.T) {
	r := newRig(t, plain)
	if err := os.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Keep(ctx, nil) }()
	await := func(what, want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			raw, err := os.ReadFile(r.cfg.ResolvConf)
			if err == nil && string(raw) == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %s, %v", what, raw, err)
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // it is another program's file
		}
	}
	r.enable()
	await("enabled", block+plain)
	r.put("nameserver 192.0.2.9\n") // another network
	await("another program has written the file", block+"nameserver 192.0.2.9\n")
	r.disable()
	await("disabled", "nameserver 192.0.2.9\n")
	r.put(plain)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.is("nobody wishes it any more", plain)
}
