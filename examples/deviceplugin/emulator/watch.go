package emulator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// watch looks out for the two signs that a node agent has started: kubelet.sock is new, or the plugin's own socket was removed.
type watch struct {
	*fsnotify.Watcher
	p *Plugin
}

func (p *Plugin) watch() (*watch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Dir(p.socket)); err != nil {
		w.Close()
		return nil, err
	}
	return &watch{w, p}, nil
}

func (w *watch) sign(ev fsnotify.Event) bool {
	kubelet := filepath.Join(w.p.cfg.Dir, "kubelet.sock")
	return ev.Name == kubelet && ev.Has(fsnotify.Create) && !w.p.cfg.IgnoreKubeletSocket && w.p.cfg.RegistryDir == "" ||
		ev.Name == w.p.socket && ev.Has(fsnotify.Remove) && !w.p.cfg.IgnoreOwnSocket
}

// drain forgets what has happened before: the plugin is about to register anyway.
func (w *watch) drain() {
	for {
		select {
		case <-w.Events:
		default:
			return
		}
	}
}

// wait returns when there is a reason to serve and register again.
func (w *watch) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-w.Events:
			if !w.sign(ev) {
				continue
			}
			if _, err := os.Lstat(w.p.socket); ev.Name == w.p.socket && err == nil {
				continue // it is the removal of an earlier one
			}
			w.p.log.Info("the plugin registers again", "because", ev.String())
			return nil
		case err := <-w.Errors:
			return err
		}
	}
}

// FollowFolder lets a shell change the devices: a file in dir has the name of a device, and its content is the device's health ("Healthy",
// "Unhealthy", any other word); an empty file takes the device away. A device without a file is as it was at first.
func (p *Plugin) FollowFolder(ctx context.Context, dir string) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(dir); err != nil {
		return err
	}
	for {
		if err := p.readFolder(dir); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
		case err := <-w.Errors:
			return err
		}
	}
}

func (p *Plugin) readFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	health := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		health[e.Name()] = strings.TrimSpace(string(content))
	}
	p.update(func([]*v1beta1.Device) []*v1beta1.Device {
		var devices []*v1beta1.Device
		for _, d := range p.cfg.Devices {
			h, told := health[d.ID]
			delete(health, d.ID)
			if !told {
				h = d.Health
			}
			if h != "" {
				devices = append(devices, &v1beta1.Device{ID: d.ID, Health: h, Topology: d.Topology})
			}
		}
		for id, h := range health {
			if h != "" {
				devices = append(devices, &v1beta1.Device{ID: id, Health: h})
			}
		}
		return devices
	})
	return nil
}
