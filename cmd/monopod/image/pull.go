package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/runtime/imageservice"
)

func newPullCommand(socket *string) *cobra.Command {
	var creds credentialFlags
	var platform string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Pull an image from its registry",
		Long: `Pulls an image from its registry, or from the configured mirrors, and prints its id on standard output. Progress
goes to standard error: on a terminal a bar for each layer, otherwise a line for each step of a layer.

Without credentials, the node asks the registry anonymously. Other users of this machine can see a password on
the command line: prefer --password-stdin.`,
		Example: `  monopod image pull busybox
  monopod image pull registry.example/app@sha256:...
  monopod image pull --username me --password-stdin registry.example/app:1 < password
  id=$(monopod image pull -q busybox)`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &cli.UsageError{Err: fmt.Errorf("name one image; see '%s --help'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPlatform(platform); err != nil {
				return err
			}
			req := imageservice.PullRequest{Image: args[0]}
			var err error
			if req.Username, req.Password, err = creds.read(os.Stdin); err != nil {
				return err
			}
			show := newPullDisplay(os.Stderr, quiet)
			return withImages(*socket, func(c imageservice.Client) error {
				img, err := c.Pull(cmd.Context(), req, show.update)
				show.end()
				if err != nil {
					return err
				}
				fmt.Println(img.ID)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&creds.creds, "creds", "", "`USER:PASSWORD` for the registry")
	f.StringVarP(&creds.username, "username", "u", "", "`USER` for the registry; needs --password-stdin")
	f.BoolVar(&creds.stdin, "password-stdin", false, "read the password from standard input")
	f.StringVar(&platform, "platform", "", "the image's `PLATFORM`; only that of this machine can be pulled")
	f.BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	return cmd
}

// checkPlatform refuses the platforms of other machines by name.
func checkPlatform(p string) error {
	own := goruntime.GOOS + "/" + goruntime.GOARCH
	if p == "" || p == own || strings.HasPrefix(p, own+"/") {
		return nil
	}
	return &cli.UsageError{Err: fmt.Errorf("--platform %s is not supported: a node keeps images for itself, and this machine is %s", p, own)}
}

type credentialFlags struct {
	creds, username string
	stdin           bool
}

func (c credentialFlags) read(stdin *os.File) (user, password string, err error) {
	usage := func(s string) (string, string, error) { return "", "", &cli.UsageError{Err: errors.New(s)} }
	switch {
	case c.creds != "" && (c.username != "" || c.stdin):
		return usage("--creds says all: leave out --username and --password-stdin")
	case c.creds != "":
		user, password, ok := strings.Cut(c.creds, ":")
		if !ok || user == "" {
			return usage("--creds wants USER:PASSWORD; to keep the password off the command line use --username USER --password-stdin")
		}
		return user, password, nil
	case c.username == "" && !c.stdin:
		return "", "", nil
	case c.username == "" || !c.stdin:
		return usage("--username and --password-stdin go together")
	case cli.IsTerminal(stdin):
		return usage("--password-stdin: standard input is a terminal, where the password would be seen; use a file, as in: ... --password-stdin < password")
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 64<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", "", fmt.Errorf("reading the password from standard input: %w", err)
	}
	password = strings.TrimRight(line, "\r\n")
	if password == "" {
		return usage("--password-stdin: standard input is empty")
	}
	return c.username, password, nil
}

// pullDisplay tells how far a pull is.
type pullDisplay struct {
	out   *os.File
	tty   bool
	quiet bool
	drawn int               // lines on the screen
	told  map[string]string // by layer, its state; when it is no terminal
}

func newPullDisplay(out *os.File, quiet bool) *pullDisplay {
	return &pullDisplay{out: out, tty: cli.IsTerminal(out), quiet: quiet, told: map[string]string{}}
}

func (d *pullDisplay) update(layers []imageservice.LayerProgress) {
	switch {
	case d.quiet:
	case d.tty:
		width, height := 80, 24
		if ws, err := unix.IoctlGetWinsize(int(d.out.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 0 && ws.Row > 0 {
			width, height = int(ws.Col), int(ws.Row)
		}
		lines := drawLayers(layers, width, height)
		io.WriteString(d.out, redraw(lines, d.drawn)) //nolint:errcheck // a display that is gone does not end the pull
		d.drawn = len(lines)
	default:
		for _, line := range changes(layers, d.told) {
			fmt.Fprintln(d.out, line)
		}
	}
}

// end leaves the display as it is.
func (d *pullDisplay) end() { d.drawn = 0 }
