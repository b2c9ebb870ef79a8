package main

import (
	"io"
	"log/slog"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// newLogger makes Monopod's log on w, and lets the libraries that have loggers of their own write into it.
func newLogger(c v1alpha1.Logging, w io.Writer) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	opts := &slog.HandlerOptions{Level: levels[c.Level]}
	var handler slog.Handler = slog.NewTextHandler(w, opts)
	if c.Format == "json" {
		handler = slog.NewJSONHandler(w, opts)
	}
	log := slog.New(handler)
	slog.SetDefault(log)
	// client-go and k8s.io/apiserver tell of their own workings at klog's info level; that is our debug.
	klog.SetSlogLogger(slog.New(demote{handler}))
	// containerd's packages log through logrus, every layer of a pull at info.
	logrus.SetOutput(w)
	logrus.SetLevel(logrus.WarnLevel)
	return log
}
