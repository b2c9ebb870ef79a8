package image

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/runtime/imageservice"
	"monopod.dev/monopod/test/clitest"
)

func layerAt(i int, state string, done, total int64) imageservice.LayerProgress {
	return imageservice.LayerProgress{Digest: fmt.Sprintf("sha256:%064d", i), State: state, Done: done, Total: total}
}

func TestDrawLayers(t *testing.T) {
	layers := []imageservice.LayerProgress{layerAt(1, "exists", 10, 10), layerAt(2, "downloading", 50e6, 100e6), layerAt(3, "waiting", 0, 5)}
	want := []string{
		"000000000000  exists",
		"000000000000  downloading [=======>        ]  50.0 MB of 100 MB",
		"000000000000  waiting",
	}
	if got := drawLayers(layers, 68, 24); !slices.Equal(got, want) {
		t.Errorf("drawn:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := drawLayers(layers, 50, 24)[1]; got != "000000000000  downloading 50.0 MB of 100 MB" {
		t.Errorf("without room for a bar: %q", got)
	}
	// Whatever there is to draw, it stays on the screen, and the terminal never wraps.
	var many []imageservice.LayerProgress
	for i, state := range []string{"waiting", "downloading", "unpacking", "verifying", "done", "exists"} {
		for j := range 20 {
			many = append(many, layerAt(i*20+j, state, int64(j), int64(19)))
		}
	}
	many = append(many, layerAt(0, "downloading", 7, 0), layerAt(0, "downloading", 9, 3), layerAt(0, "", -1, -1))
	for width := range 200 {
		for _, height := range []int{0, 1, 2, 5, 24, 200} {
			lines := drawLayers(many, width, height)
			if len(lines) > max(2, height-1) {
				t.Errorf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if len(l) > max(0, width-1) {
					t.Errorf("%dx%d: %q is too wide", width, height, l)
				}
			}
		}
	}
	if lines := drawLayers(many, 80, 24); !strings.Contains(lines[0], "downloading") || lines[len(lines)-1] != "and 101 other layers" {
		t.Errorf("of many layers:\n%s", strings.Join(lines, "\n"))
	}
}

func TestRedraw(t *testing.T) {
	if got := redraw([]string{"a", "b"}, 0); got != "\ra\x1b[K\nb\x1b[K\n\x1b[J" {
		t.Errorf("the first time: %q", got)
	}
	if got := redraw([]string{"c"}, 2); got != "\x1b[2A\rc\x1b[K\n\x1b[J" {
		t.Errorf("over two lines: %q", got)
	}
}

func TestChanges(t *testing.T) {
	told := map[string]string{}
	got := changes([]imageservice.LayerProgress{layerAt(1, "waiting", 0, 5), layerAt(2, "downloading", 0, 5e6)}, told)
	if want := []string{"layer 000000000000: downloading, 5.0 MB"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := changes([]imageservice.LayerProgress{layerAt(2, "downloading", 3e6, 5e6)}, told); len(got) != 0 {
		t.Errorf("told twice: %q", got)
	}
}

// TestUnavailable: a runtime that says that a registry is not to be had has answered; one that has gone has not.
func TestUnavailable(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unavailable, "the registry is closed") }))
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	pull := func() string {
		_, _, err := clitest.Command(t.Context(), clitest.Root(Command()), "image", "pull", "-q", "--cri-socket", socket, "registry.example/a:1")
		return fmt.Sprint(err)
	}
	if got := pull(); got != "the registry is closed" {
		t.Errorf("of a registry: %s", got)
	}
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if got := pull(); !strings.HasPrefix(got, "the runtime does not answer: is 'monopod up' running? (") {
		t.Errorf("of a runtime that is gone: %s", got)
	}
}

func TestCredentials(t *testing.T) {
	from := func(text string) *os.File {
		path := filepath.Join(t.TempDir(), "stdin")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, c := range []struct {
		flags      credentialFlags
		stdin      string
		user, pass string
		refused    string
	}{
		{flags: credentialFlags{}},
		{flags: credentialFlags{creds: "me:a:b"}, user: "me", pass: "a:b"},
		{flags: credentialFlags{username: "me", stdin: true}, stdin: "secret\r\nrest", user: "me", pass: "secret"},
		{flags: credentialFlags{username: "me", stdin: true}, refused: "is empty"},
		{flags: credentialFlags{creds: "me"}, refused: "--password-stdin"},
		{flags: credentialFlags{creds: "me:x", username: "you"}, refused: "says all"},
		{flags: credentialFlags{username: "me"}, refused: "go together"},
		{flags: credentialFlags{stdin: true}, stdin: "x", refused: "go together"},
	} {
		user, pass, err := c.flags.read(from(c.stdin))
		if c.refused != "" {
			if u := (*cli.UsageError)(nil); !errors.As(err, &u) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v", c.flags, err)
			}
			continue
		}
		if err != nil || user != c.user || pass != c.pass {
			t.Errorf("%+v: %q, %q, %v", c.flags, user, pass, err)
		}
	}
}

func TestPlatformFlag(t *testing.T) {
	if err := checkPlatform("linux/s390x"); err == nil || !strings.Contains(err.Error(), "--platform linux/s390x is not supported") {
		t.Error(err)
	}
	if err := checkPlatform(""); err != nil {
		t.Error(err)
	}
}
