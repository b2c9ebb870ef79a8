package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
)

// demote is a handler for klog: it takes records of level info as debug, and drops klog's verbose ones, which come as levels
// below info (V(4) is -4). Those hold whole requests and answers, with what is secret in them. An error that says no more than that
// this process has closed a connection is debug, too: each exec over a WebSocket ends with one.
type demote struct{ slog.Handler }

func lower(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

func (d demote) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo && d.Handler.Enabled(ctx, lower(l))
}

func (d demote) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lower(r.Level)
	if closedHere(r) {
		if r.Level = slog.LevelDebug; !d.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return d.Handler.Handle(ctx, r)
}

func closedHere(r slog.Record) (closed bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, is := a.Value.Any().(error)
		closed = is && errors.Is(err, net.ErrClosed)
		return !closed
	})
	return closed
}

func (d demote) WithAttrs(attrs []slog.Attr) slog.Handler { return demote{d.Handler.WithAttrs(attrs)} }
func (d demote) WithGroup(name string) slog.Handler       { return demote{d.Handler.WithGroup(name)} }
