package apiserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// Audit says what is written down of who did what, as one JSON object a line (audit.k8s.io/v1, Event).
type Audit struct {
	// PolicyFile says which requests are written down, and how much of each (audit.k8s.io/v1, Policy). Empty: none is.
	PolicyFile string
	// LogPath is the file to which they are written; "-" is standard output.
	LogPath string
	// MaxSize is how large the file gets, in MiB, before another one is begun, MaxBackups how many of those are kept, MaxAge for how many days; 0: for ever.
	MaxSize, MaxBackups, MaxAge int
}

// What is written down waits in memory for that long, and for that many: a disk that is slow for a moment holds no request up.
const (
	auditBatch  = 400
	auditBuffer = 10_000
	auditWait   = time.Second
)

// open makes of the configuration what the library wants; both are nil when nothing is written down.
func (a Audit) open() (audit.PolicyRuleEvaluator, audit.Backend, error) {
	switch {
	case a.PolicyFile == "" && a.LogPath == "":
		return nil, nil, nil
	case a.PolicyFile == "":
		return nil, nil, fmt.Errorf("the audit log %s has no policy: name a file of the kind Policy (audit.k8s.io/v1), which says what is written down", a.LogPath)
	case a.LogPath == "":
		return nil, nil, fmt.Errorf("the audit policy %s has no log: name the file to which is written what it wants", a.PolicyFile)
	}
	rules, err := policy.LoadPolicyFromFile(a.PolicyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("audit policy: %w", err)
	}
	out, err := a.writer()
	if err != nil {
		return nil, nil, fmt.Errorf("the audit log %s cannot be written: %w", a.LogPath, err)
	}
	backend := buffered.NewBackend(auditlog.NewBackend(out, auditlog.FormatJson, auditv1.SchemeGroupVersion), buffered.BatchConfig{
		BufferSize: auditBuffer, MaxBatchSize: auditBatch, MaxBatchWait: auditWait,
	})
	return policy.NewPolicyRuleEvaluator(rules), backend, nil
}

func (a Audit) writer() (io.Writer, error) {
	if a.LogPath == "-" {
		return os.Stdout, nil
	}
	if err := os.MkdirAll(filepath.Dir(a.LogPath), 0o700); err != nil {
		return nil, err
	}
	// That it can be written is to be known now, not at the first request. Only the owner reads what people do.
	f, err := os.OpenFile(a.LogPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return &lumberjack.Logger{Filename: a.LogPath, MaxSize: a.MaxSize, MaxBackups: a.MaxBackups, MaxAge: a.MaxAge}, nil
}
