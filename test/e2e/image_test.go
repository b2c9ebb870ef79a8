package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// imageCommand runs `monopod image` and returns what it prints and its exit code.
func imageCommand(t *testing.T, n *harness.Node, stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(harness.Bin(t, "monopod"), append([]string{"image", "--cri-socket", n.CRISocket()}, args...)...)
	var out, errout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errout
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errout.String(), cmd.ProcessState.ExitCode()
}

// TestImageCommand goes through all of `monopod image` on a running runtime, with a registry and with skopeo's archives.
func TestImageCommand(t *testing.T) {
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Fatalf("%v; apt-get install skopeo", err)
	}
	hosts := harness.PushImages(t, "registry.example", map[string]harness.ImageMaker{"team/app": func(name string) (ociarchive.Image, error) { return images.Nginx(name, 80) }})
	n := harness.StartNode(t, harness.Options{Command: "runtime", HostsTOML: hosts})
	ok := func(stdin io.Reader, args ...string) string {
		t.Helper()
		out, errout, code := imageCommand(t, n, stdin, args...)
		if code != 0 {
			t.Fatalf("monopod image %v: %d: %s", args, code, errout)
		}
		return out
	}
	fails := func(code int, says string, args ...string) {
		t.Helper()
		if out, errout, got := imageCommand(t, n, nil, args...); got != code || !strings.Contains(errout, says) || strings.Contains(errout, "rpc error") {
			t.Errorf("monopod image %v: exit code %d, want %d, and %q in: %s%s", args, got, code, says, out, errout)
		}
	}

	const app = "registry.example/team/app:1"
	out, errout, code := imageCommand(t, n, nil, "pull", app)
	id := strings.TrimSpace(out)
	if code != 0 || !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(id) || strings.Count(errout, ": done") != 2 || strings.Contains(errout, "\x1b") {
		t.Fatalf("pull: %d, %q, %q", code, out, errout)
	}
	fails(1, "registry.example/team/none:1", "pull", "registry.example/team/none:1")
	fails(2, "--platform linux/s390x is not supported", "pull", "--platform", "linux/s390x", app)
	fails(2, "--password-stdin", "pull", "--creds", "me", app)

	table := ok(nil, "ls")
	if !strings.Contains(table, app) || !strings.Contains(table, id[7:20]) {
		t.Errorf("ls: %s", table)
	}
	if got := ok(nil, "ls", "-q"); got != id+"\n" {
		t.Errorf("ls -q: %q", got)
	}
	if got := ok(nil, "ls", "--digests"); strings.Count(got, id[7:20]) != 2 || !strings.Contains(got, "registry.example/team/app@sha256:") {
		t.Errorf("ls --digests: %q", got)
	}
	var details []struct {
		ID     string
		Tags   []string
		Layers []struct{ Recorded bool }
		Config struct{ Config struct{ Cmd []string } }
	}
	if err := json.Unmarshal([]byte(ok(nil, "inspect", id[7:19])), &details); err != nil || len(details) != 1 || details[0].ID != id ||
		len(details[0].Layers) != 2 || !details[0].Layers[1].Recorded || details[0].Config.Config.Cmd[0] != "nginx" {
		t.Errorf("inspect: %+v, %v", details, err)
	}
	if got := ok(nil, "inspect", "-o", "table", app); !strings.Contains(got, "Layer 2") || !strings.Contains(got, `"StopSignal": "SIGQUIT"`) {
		t.Errorf("inspect -o table: %s", got)
	}
	fails(1, "none", "inspect", "none")
	fails(2, "at least one image", "inspect")

	// What is saved is read by others, and has the id that it had.
	dir := t.TempDir()
	saved := filepath.Join(dir, "saved.tar")
	ok(nil, "save", "-o", saved, app)
	piped := ok(nil, "save", app)
	if whole, err := os.ReadFile(saved); err != nil || string(whole) != piped {
		t.Errorf("-o and standard output differ: %d and %d bytes, %v", len(whole), len(piped), err)
	}
	if other := skopeoID(t, "docker-archive:"+saved); other != id {
		t.Errorf("skopeo reads the docker-archive with the id %s, it is %s", other, id)
	}
	if other := skopeoID(t, "oci-archive:"+saved); other != id {
		t.Errorf("skopeo reads the OCI archive with the id %s, it is %s", other, id)
	}
	skopeo(t, "copy", "-q", "docker-archive:"+saved, "docker-archive:"+dir+"/docker.tar:"+app)
	skopeo(t, "copy", "-q", "oci-archive:"+saved, "oci-archive:"+dir+"/oci.tar:1")
	fails(1, "none", "save", "-o", filepath.Join(dir, "none.tar"), "none")
	if entries, err := filepath.Glob(dir + "/*none*"); err != nil || len(entries) != 0 {
		t.Errorf("a failed save left %v", entries)
	}

	// And what others have written loads, with the same id where they keep it.
	if got := ok(nil, "rm", app); !strings.Contains(got, "untagged "+app) || !strings.Contains(got, "removed "+id) || !strings.Contains(got, "freed ") {
		t.Errorf("rm: %s", got)
	}
	fails(1, "is not here", "rm", app)
	ok(nil, "rm", "--ignore-missing", app)
	f, err := os.Open(dir + "/docker.tar")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := ok(f, "load"); got != "loaded "+app+"\n" {
		t.Errorf("load of skopeo's docker-archive: %q", got)
	}
	if got := ok(nil, "load", "-q", saved); got != id+"\n" {
		t.Errorf("load of what was saved: %q", got)
	}
	if got := ok(nil, "load", "--name", "localhost/oci:1", dir+"/oci.tar"); got != "loaded localhost/oci:1\n" {
		t.Errorf("load of skopeo's OCI archive: %q", got)
	}
	if got := ok(nil, "ls", "-q"); got != id+"\n" {
		t.Errorf("the ids of what was loaded: %q, want only %s", got, id)
	}
	for tool, file := range map[string]string{"gzip": "gz", "zstd": "zst"} {
		packed := filepath.Join(dir, "saved.tar."+file)
		if out, err := exec.Command(tool, "-q", "-k", saved, "-c").Output(); err != nil {
			t.Errorf("%s: %v", tool, err)
		} else if err := os.WriteFile(packed, out, 0o644); err != nil {
			t.Fatal(err)
		}
		ok(nil, "load", "-i", packed)
	}
	fails(1, "is no tar", "load", "/etc/passwd")
	fails(1, "/no/such/file", "load", "/no/such/file")

	if got := ok(nil, "prune"); got != "freed 0 B\n" {
		t.Errorf("prune: %q", got)
	}
	if got := ok(nil, "prune", "--all", "--dry-run"); !strings.Contains(got, "would remove "+id[7:20]) || !strings.Contains(got, "would free") {
		t.Errorf("prune --dry-run: %q", got)
	}
	if got := ok(nil, "prune", "--all"); !strings.Contains(got, "removed "+id[7:20]) {
		t.Errorf("prune --all: %q", got)
	}
	if got := ok(nil, "ls", "-o", "json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("left: %s", got)
	}
	t.Run("terminal", func(t *testing.T) { imagesOnTerminal(t, n, app, id) })
}

// imagesOnTerminal looks at what differs on a terminal: a pull draws bars, and archives neither come from it nor go to it.
func imagesOnTerminal(t *testing.T, n *harness.Node, app, id string) {
	master, slave := harness.OpenPTY(t)
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 50}); err != nil {
		t.Fatal(err)
	}
	on := func(args ...string) (shown string, code int) {
		t.Helper()
		cmd := exec.Command(harness.Bin(t, "monopod"), append([]string{"image", "--cri-socket", n.CRISocket()}, args...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		_ = cmd.Run() // the exit code says it
		const end = "END OF THE COMMAND"
		fmt.Fprint(slave, end)
		buf := make([]byte, 4096)
		for !strings.Contains(shown, end) {
			n, err := master.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			shown += string(buf[:n])
		}
		return strings.TrimSuffix(shown, end), cmd.ProcessState.ExitCode()
	}
	shown, code := on("pull", app)
	if code != 0 || !strings.Contains(shown, "\x1b[K") || strings.Count(shown, " done") < 2 || !strings.HasSuffix(shown, id+"\r\n") {
		t.Errorf("pull: %d, %q", code, shown)
	}
	for _, line := range regexp.MustCompile(`\r?\n|\r`).Split(strings.TrimSuffix(shown, id+"\r\n"), -1) {
		if plain := regexp.MustCompile("\x1b\\[[0-9]*[A-Z]").ReplaceAllString(line, ""); len(plain) > 49 {
			t.Errorf("a line is wider than the terminal: %q", plain)
		}
	}
	if shown, code := on("load"); code != 2 || !strings.Contains(shown, "standard input is a terminal") {
		t.Errorf("load: %d, %q", code, shown)
	}
	if shown, code := on("save", app); code != 2 || !strings.Contains(shown, "standard output is a terminal") {
		t.Errorf("save: %d, %q", code, shown)
	}
}

func skopeo(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("skopeo", append([]string{"--insecure-policy"}, args...)...)
	var errout bytes.Buffer
	cmd.Stderr = &errout
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("skopeo %v: %v: %s", args, err, &errout)
	}
	return string(out)
}

// skopeoID is the digest of the configuration that skopeo finds.
func skopeoID(t *testing.T, ref string) string {
	t.Helper()
	var manifest struct{ Config struct{ Digest string } }
	if err := json.Unmarshal([]byte(skopeo(t, "inspect", "--raw", ref)), &manifest); err != nil {
		t.Fatal(err)
	}
	return manifest.Config.Digest
}
