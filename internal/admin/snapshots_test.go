package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
)

// copies are Copies that remember what they were asked for.
type copies struct {
	admin.Copies
	asked any
	read  []byte
	// broken: exports end in the middle, or before they begin.
	broken, refused error
}

func (c *copies) Snapshots(context.Context) (protocol.Snapshots, error) {
	return protocol.Snapshots{Snapshots: []protocol.Snapshot{{Name: "s"}}}, nil
}

func (c *copies) Snapshot(_ context.Context, req protocol.SnapshotRequest) (protocol.Snapshot, error) {
	c.asked = req
	return protocol.Snapshot{Name: req.Name}, c.refused
}

func (c *copies) RemoveSnapshot(_ context.Context, name string) error {
	c.asked = name
	return c.refused
}

func (c *copies) Restore(_ context.Context, name string, req protocol.CopyRequest) (protocol.Copied, error) {
	c.asked = []any{name, req}
	return protocol.Copied{Claim: req.Claim}, c.refused
}

func (c *copies) Import(_ context.Context, req protocol.CopyRequest, archive io.Reader) (made protocol.Copied, err error) {
	c.asked = req
	if c.refused == nil {
		c.read, err = io.ReadAll(archive)
	}
	return protocol.Copied{Claim: req.Claim}, errors.Join(c.refused, err)
}

func (c *copies) Export(_ context.Context, req protocol.ExportRequest, to io.Writer) (protocol.Exported, error) {
	c.asked = req
	if c.refused != nil {
		return protocol.Exported{}, c.refused
	}
	for range 10 {
		if _, err := to.Write(bytes.Repeat([]byte("tar"), 50_000)); err != nil {
			return protocol.Exported{}, err
		}
	}
	return protocol.Exported{Entries: 3, LeftOut: protocol.LeftOut{LeftOut: []string{"ü\n"}}}, c.broken
}

// TestCopies: what is asked for is what was meant, archives come whole or with an error, and errors keep their words and classes.
func TestCopies(t *testing.T) {
	r := newRig(t)
	c := &copies{}
	socket := filepath.Join(r.dir, "copies.sock")
	r.serve(admin.Config{Socket: socket, Copies: c, Status: func(context.Context) protocol.Status { return protocol.Status{} }})
	node := client.New(socket)
	t.Cleanup(node.Close)
	ctx, claim := t.Context(), protocol.Claim{Namespace: "a", Claim: "b"}
	wants := func(what string, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(c.asked, want) {
			t.Errorf("%s: asked is %+v, want %+v; %v", what, c.asked, want, err)
		}
	}
	all, err := node.Snapshots(ctx)
	if err != nil || len(all.Snapshots) != 1 {
		t.Errorf("the snapshots are %+v, %v", all, err)
	}
	snapshot := protocol.SnapshotRequest{Claim: claim, Name: "s", InUse: true}
	_, err = node.Snapshot(ctx, snapshot)
	wants("snapshot", snapshot, err)
	wants("remove", "s", node.RemoveSnapshot(ctx, "s"))
	into := protocol.CopyRequest{Claim: claim, Class: "c", Size: "1Gi"}
	_, err = node.Restore(ctx, "s", into)
	wants("restore", []any{"s", into}, err)
	archive := bytes.Repeat([]byte("archive"), 300_000)
	_, err = node.Import(ctx, into, bytes.NewReader(archive))
	wants("import", into, err)
	if !bytes.Equal(c.read, archive) {
		t.Errorf("%d bytes were read of %d", len(c.read), len(archive))
	}
	var got bytes.Buffer
	export := protocol.ExportRequest{Claim: claim, InUse: true}
	done, err := node.Export(ctx, export, &got)
	wants("export", export, err)
	if got.Len() != 1_500_000 || done.Entries != 3 || done.LeftOut.LeftOut[0] != "ü\n" {
		t.Errorf("%d bytes came, %+v", got.Len(), done)
	}

	c.broken = errors.New("the disk is broken")
	if _, err := node.Export(ctx, export, io.Discard); err == nil || err.Error() != "the disk is broken" {
		t.Errorf("an archive that ends in the middle: %v", err)
	}
	if _, err := node.Export(ctx, export, writer(func([]byte) (int, error) { return 0, io.ErrShortWrite })); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("who cannot write it: %v", err)
	}
	c.refused = fmt.Errorf("there is none: %w", errdefs.ErrNotFound)
	for what, err := range map[string]error{
		"snapshot": func() error { _, err := node.Snapshot(ctx, snapshot); return err }(),
		"remove":   node.RemoveSnapshot(ctx, "s"),
		"restore":  func() error { _, err := node.Restore(ctx, "s", into); return err }(),
		"import":   func() error { _, err := node.Import(ctx, into, io.LimitReader(endless{}, 64<<20)); return err }(),
		"export":   func() error { _, err := node.Export(ctx, export, io.Discard); return err }(),
	} {
		if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "there is none") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.client.Snapshots(ctx); !errdefs.IsNotImplemented(err) {
		t.Errorf("a process without volumes: %v", err)
	}
	// Only an import has a body.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://monopod"+protocol.RestorePath, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := over(socket).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a body for a restore: %s", resp.Status)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// over is HTTP over a socket.
func over(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}
