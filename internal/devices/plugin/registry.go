package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"monopod.dev/monopod/internal/kit/wait"
)

// How far the plugin watcher's folder is looked into: drivers have folders of their own there.
const (
	maxDepth   = 4
	maxEntries = 1024
)

// registry follows the plugin watcher's folder: each socket in it, or below, says what it is.
type registry struct {
	*runner
	entries map[string]*entry // by path
}

// entry is one socket of the folder.
type entry struct {
	at     file
	cancel context.CancelFunc
}

func (r *runner) followRegistry() {
	g := &registry{runner: r, entries: map[string]*entry{}}
	follow(r.ctx, nil, g.look, func(err error) { r.trouble("registry", r.cfg.RegistryDir, words(err)) })
}

// look takes up the sockets that have come and lets go of those that have gone. One that was replaced is a new one.
func (g *registry) look() sight {
	if err := os.MkdirAll(g.cfg.RegistryDir, 0o750); err != nil {
		g.trouble("registry folder", g.cfg.RegistryDir, "plugins are not looked for: "+err.Error())
		return sight{again: soon}
	}
	folders, sockets, err := scan(g.cfg.RegistryDir)
	g.trouble("registry folder", g.cfg.RegistryDir, words(err))
	for path, e := range g.entries {
		if at, ok := sockets[path]; !ok || at != e.at {
			e.cancel()
			delete(g.entries, path)
		}
	}
	for path, at := range sockets {
		if g.entries[path] == nil {
			ctx, cancel := context.WithCancel(g.ctx)
			g.entries[path] = &entry{at, cancel}
			g.wg.Go(func() {
				defer cancel()
				g.introduce(ctx, path, at)
			})
		}
	}
	return sight{watch: folders}
}

// scan lists the folders and the sockets of a tree. Names that begin with a dot are not looked at, as by kubelets.
func scan(root string) (folders []string, sockets map[string]file, err error) {
	sockets = map[string]file{}
	var errs []error
	todo := []string{root}
	for depth := 0; depth < maxDepth && len(todo) > 0; depth++ {
		var below []string
		for _, dir := range todo {
			entries, err := os.ReadDir(dir)
			if err != nil {
				if !errors.Is(err, os.ErrNotExist) {
					errs = append(errs, err)
				}
				continue
			}
			folders = append(folders, dir)
			for _, e := range entries {
				path := filepath.Join(dir, e.Name())
				if strings.HasPrefix(e.Name(), ".") {
					continue
				}
				if len(sockets)+len(folders)+len(below) >= maxEntries {
					return folders, sockets, fmt.Errorf("it has more than %d folders and sockets; the others are not looked at", maxEntries)
				}
				if e.IsDir() {
					below = append(below, path)
				} else if at, mode, err := fileAt(path); err == nil && mode == unix.S_IFSOCK {
					sockets[path] = at
				}
			}
		}
		todo = below
	}
	return folders, sockets, errors.Join(errs...)
}

// introduce asks a socket what it is until that is known, and then keeps it so until the socket goes: the plugin goes with it.
func (g *registry) introduce(ctx context.Context, path string, at file) {
	key := fmt.Sprint("registry ", path, at)
	defer g.trouble(key, path, "")
	p := announced{socket: path, from: key}
	for pause := g.pace.retryMin; ; pause = min(2*pause, g.pace.retryMax) {
		err := g.ask(ctx, &p)
		early := errdefs.IsUnavailable(err) && pause < 4*g.pace.retryMin // a socket is there a moment before it is served
		if ctx.Err() == nil && !early {
			g.trouble(key, path, words(err))
		}
		if err == nil || !errdefs.IsUnavailable(err) && !errdefs.IsAlreadyExists(err) && !errdefs.IsResourceExhausted(err) {
			break
		}
		if wait.For(ctx, pause) != nil {
			return
		}
	}
	<-ctx.Done()
	typeOf(p.info).leave(g.runner, p)
}

// ask takes what a socket says about itself, and tells it what came of that.
func (g *registry) ask(ctx context.Context, p *announced) error {
	brief, cancel := context.WithTimeout(ctx, g.pace.answer)
	defer cancel()
	conn, err := connect(brief, p.socket)
	if err != nil {
		return &awayError{fmt.Sprintf("the plugin does not answer: %v", unnamed(err))}
	}
	defer conn.close()
	client := registerapi.NewRegistrationClient(conn)
	info, err := client.GetInfo(brief, &registerapi.InfoRequest{})
	if err != nil {
		return &awayError{fmt.Sprintf("the plugin does not say what it is: GetInfo: %v", plain(err))}
	}
	p.info = info
	refused := typeOf(info).take(ctx, g.runner, *p)
	answer := &registerapi.RegistrationStatus{PluginRegistered: refused == nil, Error: words(refused)}
	told, cancelTold := context.WithTimeout(ctx, g.pace.answer)
	defer cancelTold()
	if _, err := client.NotifyRegistrationStatus(told, answer); err != nil && ctx.Err() == nil {
		g.log.Warn("plugin does not take what came of its registration", "socket", p.socket, "error", plain(err))
	}
	return refused
}
