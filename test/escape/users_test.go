package escape

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
)

// TestCVE2023_25173: a program's primary group is not among its supplementary groups. A file denies something to a group that everybody else may do; who can
// change its own primary group, by a setgid program, is not of the denied group any more and passes as one of everybody else.
//
// The attacker would have won if a first process or a command read the file, or if its groups lacked one that it has by the pod or by the image's /etc/group.
func TestCVE2023_25173(t *testing.T) {
	const image = "localhost/escape/groups:1"
	layer := ociarchive.Layer{
		{Path: "etc/passwd", Data: []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/:/bin/sh\n")},
		{Path: "etc/group", Data: []byte("root:x:0:\napp:x:1000:\nextra:x:3000:app\n")},
	}
	hostile := hostileImage(t, image, layer, func(c *ocispec.ImageConfig) { c.User = "app" })
	onEachEngine(t, []ociarchive.Image{hostile}, func(n *node) {
		shared := n.place()
		n.check(os.Chmod(shared, 0o755))
		made := n.pod(nil).output(mounted(shell("cd /shared && echo SECRET > denied && chown 0:1000 denied && chmod 604 denied && mkdir setgid && cp /attack setgid && chown 0:2000 setgid/attack && chmod 2755 setgid/attack && echo made"), shared, "/shared"))
		if made != "made\n" {
			n.Fatalf("the files could not be made: %q", made)
		}
		const try = "grep ^Groups: /proc/self/status; cat /shared/denied 2>/dev/null; /shared/setgid/attack read /shared/denied 2>/dev/null; echo tried"
		by := map[string]struct {
			change func(sc *cri.LinuxContainerSecurityContext)
			groups []string
		}{
			"the image's user": {func(*cri.LinuxContainerSecurityContext) {}, []string{"1000", "3000"}},
			"a name":           {func(sc *cri.LinuxContainerSecurityContext) { sc.RunAsUsername = "app" }, []string{"1000", "3000"}},
			"numbers": {func(sc *cri.LinuxContainerSecurityContext) {
				sc.RunAsUser, sc.RunAsGroup = &cri.Int64Value{Value: 4711}, &cri.Int64Value{Value: 1000}
			}, []string{"1000"}},
			"groups of the pod's": {func(sc *cri.LinuxContainerSecurityContext) {
				sc.RunAsUser, sc.RunAsGroup, sc.SupplementalGroups = &cri.Int64Value{Value: 4711}, &cri.Int64Value{Value: 1000}, []int64{4000}
			}, []string{"1000", "4000"}},
		}
		p := n.pod(nil)
		for what, w := range by {
			cfg := mounted(of(image, shell(try+"; "+sleeper)), shared, "/shared")
			w.change(cfg.Linux.SecurityContext)
			c := p.launch(cfg)
			c.says("tried")
			for who, out := range map[string]string{"the first process": c.printed(), "a command": c.exec("sh", "-c", try)} {
				if strings.Contains(out, "SECRET") {
					n.Errorf("%s: %s has shed its group, and read what is denied to it", what, who)
				}
				line, _, _ := strings.Cut(out, "\n")
				has := strings.Fields(strings.TrimPrefix(line, "Groups:"))
				if slices.Sort(has); !slices.Equal(has, w.groups) {
					n.Errorf("%s: %s has the groups %q, not %q", what, who, has, w.groups)
				}
			}
		}
	})
}

// show prints a file.
func show(args []string) error {
	raw, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(raw)
	return err
}

// TestCVE2024_40635: the image's user, or that of the pod, is a number that a program cuts down to fewer bits: 4294967296 is then 0, and 4294967295 is what
// the kernel takes for "as it is".
//
// The attacker would have won if a container started as anybody but that number: as root most of all, which a pod may have been forbidden.
func TestCVE2024_40635(t *testing.T) {
	notShort(t)
	var hostile []ociarchive.Image
	users := map[string]string{} // by image
	for i, user := range []string{"4294967296", "4294967295", "2147483648", "18446744073709551616", "-1", "4294967296:4294967296", "1000:4294967296", "1000:4294967295",
		"65536000000000000000", "0x0", "00", "+0", " 0", "1e3", "4294967296:app"} {
		name := fmt.Sprintf("localhost/escape/user%d:1", i)
		users[name] = user
		hostile = append(hostile, hostileImage(t, name, nil, func(c *ocispec.ImageConfig) { c.User = user }))
	}
	const wide = "localhost/escape/passwdwide:1"
	lines := []string{"root:x:0:0:root:/root:/bin/sh"}
	for i, id := range []string{"4294967296:4294967296", "4294967295:4294967295", "-1:-1", "2147483648:1000", "1000:4294967296"} {
		lines = append(lines, fmt.Sprintf("wide%d:x:%s:wide:/:/bin/sh", i, id))
	}
	hostile = append(hostile, hostileImage(t, wide, ociarchive.Layer{{Path: "etc/passwd", Data: []byte(strings.Join(lines, "\n") + "\n")}}, nil))
	onEachEngine(t, hostile, func(n *node) {
		p := n.pod(nil)
		const who = "id -u; id -g"
		refusedOrSame := func(what, user string, cfg *cri.ContainerConfig) {
			n.Helper()
			c := p.try(cfg)
			defer c.stop()
			if c.err != nil {
				return
			}
			c.wait()
			ids := strings.Fields(c.printed())
			uid, gid, _ := strings.Cut(user, ":")
			for i, asked := range []string{uid, gid} {
				if want, err := strconv.ParseUint(asked, 10, 64); asked != "" && (err != nil || len(ids) != 2 || ids[i] != strconv.FormatUint(want, 10)) {
					n.Errorf("%s %q runs as %q", what, user, ids)
				}
			}
		}
		for name, user := range users {
			refusedOrSame("the image's user", user, of(name, shell(who)))
		}
		for i := range lines[1:] {
			cfg := of(wide, shell(who))
			cfg.Linux.SecurityContext.RunAsUsername = fmt.Sprintf("wide%d", i)
			ids := strings.Split(lines[i+1], ":")
			refusedOrSame("a user of /etc/passwd", ids[2]+":"+ids[3], cfg)
		}
		for _, id := range []int64{1 << 32, 1<<32 - 1, 1 << 31, -1, -1 << 31, 1<<63 - 1, -1 << 63} {
			number := strconv.FormatInt(id, 10)
			cfg := shell(who)
			cfg.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: id}
			refusedOrSame("the pod's user", number, cfg)
			cfg = shell(who)
			cfg.Linux.SecurityContext.RunAsUser, cfg.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 1000}, &cri.Int64Value{Value: id}
			refusedOrSame("the pod's group", "1000:"+number, cfg)
		}
	})
}
