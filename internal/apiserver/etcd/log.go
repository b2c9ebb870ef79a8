package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap/zapcore"
)

// core passes etcd's log to a slog.Logger, less loudly. etcd's "info" tells of every step of its start and its warnings of
// the shape of a cluster that this is not: an operator would not want either, so both become debug. What ends etcd is
// returned by Start and Wait, and what fails a request by the request.
type core struct {
	log *slog.Logger
	// closing: from the beginning of Close, when etcd calls its closed listeners errors, all is debug.
	closing *atomic.Bool
}

var _ zapcore.Core = core{}

func newCore(log *slog.Logger) core {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return core{log: log.With("component", "etcd"), closing: new(atomic.Bool)}
}

// premature is what etcd says as an error, and then tries again, when a new store has not got its first snapshot yet.
const premature = "failed to update storage version"

func (c core) level(l zapcore.Level) slog.Level {
	if l > zapcore.ErrorLevel {
		return slog.LevelError // the process ends with it
	}
	if l < zapcore.ErrorLevel || c.closing.Load() {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// Enabled implements zapcore.LevelEnabler.
func (c core) Enabled(l zapcore.Level) bool {
	// etcd's own debug level tells of each entry that is applied, with its bytes: a secret's too.
	return l > zapcore.DebugLevel && c.log.Enabled(context.Background(), c.level(l)) //nolint:forbidigo // zap has no context to give
}

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{log: c.log.With(attributes(fields)...), closing: c.closing}
}

// Check implements zapcore.Core.
func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	l := c.level(e.Level)
	if e.Message == premature {
		l = slog.LevelDebug
	}
	attrs := attributes(fields)
	if e.Level > zapcore.ErrorLevel {
		attrs = append(attrs, "hint", hint(fields))
	}
	c.log.Log(context.Background(), l, e.Message, attrs...) //nolint:forbidigo,sloglint // as above; the message is the library's
	return nil
}

// hint is what to do after etcd has ended the process, because it could not write.
func hint(fields []zapcore.Field) string {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && errors.Is(err, syscall.ENOSPC) {
			return "the disk is full: make room on the file system of the data directory and start again; nothing that was acknowledged is lost, and pods run on"
		}
	}
	return "the API server's store cannot go on, so the process ends; pods run on"
}

// Sync implements zapcore.Core.
func (c core) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	attrs := make([]any, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		// An error adds a second key with its details; its own key is enough.
		if v, ok := enc.Fields[f.Key]; ok {
			attrs = append(attrs, slog.Any(f.Key, v))
		}
	}
	return attrs
}
