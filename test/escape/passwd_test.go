package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
)

// The image's users in these tests.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home:/bin/sh\n"
	evil   = "evil:x:0:0::/:/bin/sh"
)

// TestCVE2026_15809, and with it CVE-2022-4318: a HOME with a line's end becomes a line of /etc/passwd, and so a user whom the image does not
// have. HOME is the image's or the pod's, for a user whom /etc/passwd has and for one whom it has not.
//
// The attacker would have won if the container's /etc/passwd had another line than its image's, or if HOME brought another variable along.
func TestCVE2026_15809(t *testing.T) {
	const image, variable = "localhost/escape/passwd:1", "localhost/escape/home:1"
	layer := ociarchive.Layer{{Path: "etc/passwd", Data: []byte(passwd)}}
	homes := []string{"/home\n" + evil, "/home\r\n" + evil + "\n", "/home:/bin/sh\n" + evil, `/home\n` + evil}
	hostile := []ociarchive.Image{
		hostileImage(t, image, layer, nil),
		hostileImage(t, variable, layer, func(c *ocispec.ImageConfig) { c.Env = append(c.Env, "HOME="+homes[0]) }),
	}
	onEachEngine(t, hostile, func(n *node) {
		p := n.pod(nil)
		const show = "cat /etc/passwd; echo; id -u evil 2>&1; echo shown"
		for _, name := range []string{image, variable} {
			for _, user := range []*cri.Int64Value{nil, {Value: 1000}, {Value: 4711}} {
				for _, home := range append([]string{""}, homes...) {
					cfg := of(name, shell(show))
					cfg.Linux.SecurityContext.RunAsUser = user
					if home != "" {
						cfg.Envs = []*cri.KeyValue{{Key: "HOME", Value: []byte(home)}}
					}
					out := p.output(cfg)
					if got, _, ok := strings.Cut(out, "\n\n"); out != "" && (!ok || got+"\n" != passwd) {
						n.Errorf("user %v with the HOME %q: /etc/passwd has %q", user.GetValue(), home, out)
					}
				}
			}
		}
	})
}

// TestHomeOfHostileUsers: a user's home in the image's /etc/passwd carries more than a path: NULs, which end a string for whoever passes it on to a
// program, another variable behind them, or more bytes than a program's environment may have.
//
// The attacker would have won if the program had a variable that nobody gave it, or if the start never ended.
func TestHomeOfHostileUsers(t *testing.T) {
	var hostile []ociarchive.Image
	var names []string
	for name, line := range map[string]string{
		"nul":    "app:x:1000:1000:app:/home\x00LD_PRELOAD=/evil.so:/bin/sh",
		"equals": "app:x:1000:1000:app:=LD_PRELOAD=/evil.so:/bin/sh",
		"cr":     "app:x:1000:1000:app:/home\rLD_PRELOAD=/evil.so:/bin/sh",
		"long":   "app:x:1000:1000:app:/" + strings.Repeat("long/", 200_000) + ":/bin/sh",
		"name":   "LD_PRELOAD=/evil.so\x00:x:1000:1000:app:/home:/bin/sh",
	} {
		name = "localhost/escape/home-" + name + ":1"
		names = append(names, name)
		hostile = append(hostile, hostileImage(t, name, ociarchive.Layer{{Path: "etc/passwd", Data: []byte("root:x:0:0:root:/root:/bin/sh\n" + line + "\n")}}, nil))
	}
	slices.Sort(names)
	onEachEngine(t, hostile, func(n *node) {
		p := n.pod(nil)
		for _, name := range names {
			cfg := of(name, shell("tr '\\0' '\\n' < /proc/self/environ; echo shown; "+sleeper))
			cfg.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
			c := p.try(cfg)
			if c.err != nil {
				n.Logf("%s is refused: %v", name, c.err)
				continue
			}
			c.says("shown")
			out := c.printed()
			if resp, err := c.tryExec(int64(bound()/time.Second), "sh", "-c", "tr '\\0' '\\n' < /proc/self/environ"); err == nil {
				out += string(resp.GetStdout())
			}
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "LD_PRELOAD") {
					n.Errorf("%s: the program has %s", name, line)
				}
			}
			c.stop()
		}
	})
}

// TestHostilePasswd: a container puts something else in the place of its /etc/passwd, in which whoever starts a command looks for the user's home: what
// waits when it is opened, has no end, is huge, is a device outside of what the container may use, or is a file of a process.
//
// The attacker would have won if commands hung or failed for good, or if the device was opened by somebody outside of the container's cgroups.
func TestHostilePasswd(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		p := n.pod(nil)
		c := p.launch(shell(sleeper))
		for _, way := range []string{
			"mkfifo /etc/passwd", "ln -s /dev/zero /etc/passwd", "ln -s /proc/1/mem /etc/passwd", "ln -s /proc/kmsg /etc/passwd", "ln -s /dev/tty /etc/passwd",
			"ln -s passwd /etc/passwd", "mkdir /etc/passwd", "ln -s /proc/self/fd/0 /etc/passwd", "ln -s /dev/console /etc/passwd",
			"truncate -s 8G /etc/passwd", "yes " + strings.TrimSuffix(evil, "\n") + " | head -c 67108864 > /etc/passwd", "mknod /etc/passwd c 1 11", "mknod /etc/passwd c 10 130", "mknod /etc/passwd b 7 0",
		} {
			c.exec("sh", "-c", "rm -rf /etc/passwd; "+way)
			var seen *opens
			if strings.HasPrefix(way, "mknod") {
				seen = c.watch("/etc/passwd", true)
			}
			begin := time.Now()
			if resp, err := c.tryExec(int64(60*harness.SlowFactor()), "echo", "fine"); err != nil || string(resp.GetStdout()) != "fine\n" {
				n.Errorf("after %q a command ends with %v, %v", way, resp, err)
			}
			if took := time.Since(begin); took > bound() {
				n.Errorf("after %q a command took %v", way, took)
			}
			if seen != nil {
				seen.wantNone(way)
			}
		}
	})
}

// TestPasswdOfTheHost: the image's /etc/passwd, or /etc, is a link. Users are looked up in it when a container is made.
//
// The attacker would have won if a file of the host was read: then a user is known whom only that file has; or if the look-up never ended.
func TestPasswdOfTheHost(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "passwd")
	if err := os.WriteFile(file, []byte("hostuser:x:4242:4242::/:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var hostile []ociarchive.Image
	for i, layer := range []ociarchive.Layer{
		{{Path: "etc/passwd", Symlink: file}},
		{{Path: "etc/passwd", Symlink: "../../../../../../../.." + file}},
		{{Path: "etc", Symlink: dir}},
		{{Path: "etc/passwd", Symlink: "/proc/1/root" + file}},
		{{Path: "etc/passwd", Symlink: "/dev/zero"}},
		{{Path: "etc/passwd", Symlink: "passwd"}},
	} {
		hostile = append(hostile, hostileImage(t, fmt.Sprintf("localhost/escape/hostpasswd%d:1", i), layer, nil))
	}
	onEachEngine(t, hostile, func(n *node) {
		p := n.pod(nil)
		for _, image := range hostile {
			begin := time.Now()
			cfg := of(image.Name, shell("id -u"))
			cfg.Linux.SecurityContext.RunAsUsername = "hostuser"
			if c := p.try(cfg); c.err == nil {
				n.Errorf("%s: the user of a file of the host is known", image.Name)
			}
			p.try(of(image.Name, shell("true"))).stop() // as root, who needs no look-up
			if took := time.Since(begin); took > 2*bound() {
				n.Errorf("%s: it took %v", image.Name, took)
			}
		}
	})
}
