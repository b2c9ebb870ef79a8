package image

import (
	"context"
	"io"
	"log/slog"

	"github.com/sirupsen/logrus"
)

// newLogBridge makes what containerd's packages log by (logrus, found in the context) a front of our logger. Their
// "info" tells steps of an operation whose result we report ourselves, so it is "debug" here.
func newLogBridge(ctx context.Context, to *slog.Logger) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	if to.Enabled(ctx, slog.LevelDebug) {
		l.SetLevel(logrus.DebugLevel)
	}
	l.AddHook(slogHook{ctx: ctx, to: to})
	return logrus.NewEntry(l)
}

type slogHook struct {
	ctx context.Context // of a line that comes without one
	to  *slog.Logger
}

func (slogHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h slogHook) Fire(e *logrus.Entry) error {
	level := slog.LevelDebug
	switch {
	case e.Level <= logrus.ErrorLevel:
		level = slog.LevelError
	case e.Level == logrus.WarnLevel:
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, len(e.Data))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	ctx := e.Context
	if ctx == nil {
		ctx = h.ctx
	}
	h.to.LogAttrs(ctx, level, e.Message, attrs...)
	return nil
}
