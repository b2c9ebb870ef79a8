package crifake

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Print has a container write to its log, as it is: into the file that was opened for it, whatever that is called by now.
func (r *Runtime) Print(t testing.TB, id, text string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c.log == nil {
		if err := r.openLog(c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.locked(func() { c.log.Close() }) })
	}
	if _, err := c.log.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// openLog opens the log at its path. r.mu is held.
func (r *Runtime) openLog(c *container) error {
	if err := os.MkdirAll(filepath.Dir(c.status.LogPath), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(c.status.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if c.log != nil {
		c.log.Close()
	}
	c.log = f
	return nil
}

// ReopenContainerLog implements CRI.
func (r *Runtime) ReopenContainerLog(_ context.Context, req *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("ReopenContainerLog", req.ContainerId); err != nil {
		return nil, err
	}
	c := r.containers[req.ContainerId]
	if c == nil {
		return nil, notFound("container", req.ContainerId)
	}
	return &cri.ReopenContainerLogResponse{}, r.openLog(c)
}
