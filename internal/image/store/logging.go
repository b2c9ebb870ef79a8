package store

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/sirupsen/logrus"
)

// standardOnce guards logrus's own global logger, which is as global as it is.
var standardOnce sync.Once

// bridgeStandardLog does the same for the few lines that they log without a context, through logrus's global logger.
// Nothing else in the process logs there. The first store that is opened decides where they go.
func bridgeStandardLog(ctx context.Context, to *slog.Logger) {
	standardOnce.Do(func() {
		std := logrus.StandardLogger()
		std.SetOutput(io.Discard)
		std.AddHook(slogHook{ctx: ctx, to: to, quiet: true})
	})
}

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
	// quiet: warnings are for developers (features of the file system that are not there) and no concern of an operator.
	quiet bool
}

func (slogHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h slogHook) Fire(e *logrus.Entry) error {
	level := slog.LevelDebug
	switch {
	case e.Level <= logrus.ErrorLevel:
		level = slog.LevelError
	case e.Level == logrus.WarnLevel && !h.quiet:
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
	h.to.LogAttrs(ctx, level, e.Message, attrs...) //nolint:sloglint // it passes on what a library says
	return nil
}
