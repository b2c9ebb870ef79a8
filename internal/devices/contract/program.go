package contract

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/devices/plugin"
	"monopod.dev/monopod/internal/host/mountns"
)

const (
	pluginsFolder  = plugin.DefaultDir
	registryFolder = plugin.DefaultRegistryDir
	// cdiFolder is where plugins write CDI specs.
	cdiFolder = "/var/run/cdi"
	// killPatience is how long killed processes may take to end.
	killPatience = 10 * time.Second
)

// program is the plugin's command.
type program struct {
	process *mountns.Process
	place   place
	words   *tail
}

// start starts the command. The words of one that ran before are kept.
func start(cfg Config, p place) (*program, error) {
	return startWith(cfg, p, &tail{copy: cfg.Output})
}

func startWith(cfg Config, p place, words *tail) (*program, error) {
	process, err := mountns.Start(mountns.Config{
		Folders: []mountns.Folder{{Source: p.plugins, Target: pluginsFolder}, {Source: p.registry, Target: registryFolder}, {Source: p.cdi, Target: cdiFolder}},
		Command: cfg.Command, Output: words,
	})
	if err != nil {
		return nil, err
	}
	return &program{process: process, place: p, words: words}, nil
}

func (p *program) done() <-chan struct{} { return p.process.Done() }

// ended says whether the program has ended, and how.
func (p *program) ended() (how string, ended bool) {
	select {
	case <-p.process.Done():
		how, _ := p.process.Ended()
		return how, true
	default:
		return "", false
	}
}

// stop asks the program to end. It returns how it did, or nothing when it does not.
func (p *program) stop(ctx context.Context, most time.Duration) string {
	if err := p.process.Signal(unix.SIGTERM); err != nil {
		return ""
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-p.process.Done():
	case <-t.C:
	case <-ctx.Done():
	}
	how, _ := p.ended()
	return how
}

// kill ends all that is left of it, and names what had outlived it.
func (p *program) kill() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	return p.process.Kill(ctx)
}

// outside is where this process finds what the plugin calls by a path.
func (p *program) outside(seen string) string {
	for folder, ours := range map[string]string{pluginsFolder: p.place.plugins, registryFolder: p.place.registry, cdiFolder: p.place.cdi} {
		if rest, ok := strings.CutPrefix(seen, folder+"/"); ok {
			return ours + "/" + rest
		}
	}
	return p.process.Path(seen)
}

func (p *program) lastWords(lines int) []string { return p.words.last(lines) }

// tail keeps the end of what is written.
type tail struct {
	copy io.Writer
	mu   sync.Mutex
	b    []byte
}

const (
	tailSize    = 64 << 10
	longestLine = 400
)

// Write never fails: a plugin must not be stopped by its output.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailSize {
		t.b = append([]byte(nil), t.b[len(t.b)-tailSize:]...)
	}
	if t.copy != nil {
		_, _ = t.copy.Write(p)
	}
	return len(p), nil
}

func (t *tail) last(lines int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.b))
	if text == "" {
		return nil
	}
	all := strings.Split(strings.ToValidUTF8(text, "?"), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		if len(line) > longestLine {
			all[i] = strings.ToValidUTF8(line[:longestLine], "") + "..."
		}
	}
	return all
}

// settle waits a moment for the end of a program whose connections have ended. It returns how it ended, or nothing when it did not.
func (p *program) settle(ctx context.Context) string {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-p.process.Done():
	case <-t.C:
	case <-ctx.Done():
	}
	how, _ := p.ended()
	return how
}
