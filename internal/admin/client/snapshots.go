package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/admin/protocol"
)

// Snapshots returns the snapshots of volumes.
func (c *Client) Snapshots(ctx context.Context) (s protocol.Snapshots, err error) {
	return s, c.get(ctx, protocol.SnapshotsPath, nil, &s)
}

// Snapshot makes a snapshot of a claim's volume.
func (c *Client) Snapshot(ctx context.Context, req protocol.SnapshotRequest) (s protocol.Snapshot, err error) {
	q := claimed(req.Claim)
	given(q, map[string]string{protocol.SnapshotParam: req.Name, protocol.InUseParam: yes(req.InUse)})
	return s, c.ask(ctx, http.MethodPost, protocol.SnapshotsPath, q, nil, &s)
}

// RemoveSnapshot removes a snapshot.
func (c *Client) RemoveSnapshot(ctx context.Context, name string) error {
	return c.ask(ctx, http.MethodDelete, protocol.SnapshotsPath, url.Values{protocol.SnapshotParam: {name}}, nil, &struct{}{})
}

// Restore makes a new claim with what is in a snapshot.
func (c *Client) Restore(ctx context.Context, snapshot string, req protocol.CopyRequest) (made protocol.Copied, err error) {
	q := copied(req)
	q.Set(protocol.SnapshotParam, snapshot)
	return made, c.ask(ctx, http.MethodPost, protocol.RestorePath, q, nil, &made)
}

// Import makes a new claim with what is in an archive.
func (c *Client) Import(ctx context.Context, req protocol.CopyRequest, archive io.Reader) (made protocol.Copied, err error) {
	return made, c.ask(ctx, http.MethodPost, protocol.ImportPath, copied(req), archive, &made)
}

// Export writes an archive of a claim or of a snapshot. What was written before an error is of no use.
func (c *Client) Export(ctx context.Context, req protocol.ExportRequest, to io.Writer) (done protocol.Exported, err error) {
	q := claimed(req.Claim)
	given(q, map[string]string{protocol.SnapshotParam: req.Snapshot, protocol.InUseParam: yes(req.InUse)})
	resp, err := c.open(ctx, http.MethodGet, protocol.ExportPath, q)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()
	buf := make([]byte, 256<<10)
	if _, err := io.CopyBuffer(onlyWriter{to}, resp.Body, buf); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the node at %s has ended in the middle of the archive: %w", c.socket, err)
		}
		return done, err
	}
	if raw := resp.Trailer.Get(protocol.ErrorTrailer); raw != "" {
		var e protocol.Error
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			return done, err
		}
		return done, errors.New(e.Message)
	}
	raw := resp.Trailer.Get(protocol.ResultTrailer)
	if raw == "" {
		return done, fmt.Errorf("the node at %s has not said that the archive is whole: %w", c.socket, errdefs.ErrAborted)
	}
	return done, json.Unmarshal([]byte(raw), &done)
}

// onlyWriter hides what else a file can, so that copying to it stays in pieces.
type onlyWriter struct{ io.Writer }

func claimed(c protocol.Claim) url.Values {
	q := url.Values{}
	given(q, map[string]string{protocol.NamespaceParam: c.Namespace, protocol.ClaimParam: c.Claim})
	return q
}

func copied(req protocol.CopyRequest) url.Values {
	q := claimed(req.Claim)
	given(q, map[string]string{protocol.ClassParam: req.Class, protocol.SizeParam: req.Size})
	return q
}

func given(q url.Values, all map[string]string) {
	for name, v := range all {
		if v != "" {
			q.Set(name, v)
		}
	}
}

func yes(is bool) string {
	if is {
		return "true"
	}
	return ""
}
