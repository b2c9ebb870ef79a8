package contract

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// lookEvery is how often the plugin watcher's folder is looked at.
const lookEvery = 50 * time.Millisecond

// watcher is the plugin watcher: it asks each socket in its folder what it is.
type watcher struct {
	desk   *desk
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func watch(ctx context.Context, d *desk) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{desk: d, cancel: cancel}
	w.wg.Go(func() { w.run(ctx) })
	return w
}

func (w *watcher) stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *watcher) run(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	var known []string
	for {
		var sockets []string
		_ = filepath.WalkDir(w.desk.registry, func(path string, e fs.DirEntry, err error) error { // what cannot be read is no socket
			if err == nil && e.Type()&fs.ModeSocket != 0 {
				sockets = append(sockets, path)
			}
			return nil
		})
		known = slices.DeleteFunc(known, func(path string) bool { return !slices.Contains(sockets, path) })
		for _, path := range sockets {
			if !slices.Contains(known, path) && w.ask(ctx, path) {
				known = append(known, path)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// ask returns false when the socket has to be asked again.
func (w *watcher) ask(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := connect(ctx, path)
	if err != nil {
		return false
	}
	defer conn.close()
	client := registerapi.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return false
	}
	answer := &registerapi.RegistrationStatus{PluginRegistered: info.GetType() == registerapi.DevicePlugin}
	if !answer.PluginRegistered {
		answer.Error = "monopod device test tries device plugins only"
	} else {
		endpoint := info.GetEndpoint()
		if endpoint == "" {
			endpoint = registryFolder + strings.TrimPrefix(path, w.desk.registry)
		}
		w.desk.record(registration{at: time.Now(), resource: info.GetName(), version: strings.Join(info.GetSupportedVersions(), ", "),
			supported: info.GetSupportedVersions(), endpoint: endpoint, watched: true})
	}
	_, _ = client.NotifyRegistrationStatus(ctx, answer) // the plugin may not care
	return true
}
