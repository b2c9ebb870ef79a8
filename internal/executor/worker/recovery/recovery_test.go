//go:build cgo

package recovery

import (
	"testing"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
)

func TestDecide(t *testing.T) {
	running := record.Record{Stage: record.StageRunning, PID: 7}
	exited := record.Record{Stage: record.StageExited, PID: 7, Exit: &protocol.Exit{}}
	for name, tc := range map[string]struct {
		r    record.Record
		f    found
		want action
	}{
		"killed while it created":         {record.Record{Stage: record.StageCreating}, found{sameBoot: true, held: true, alive: true}, actUndo},
		"killed while it deleted":         {record.Record{Stage: record.StageDeleting, PID: 7, Exit: &protocol.Exit{}}, found{sameBoot: true, held: true}, actDelete},
		"runs":                            {running, found{sameBoot: true, held: true, alive: true}, actTakeOver},
		"created":                         {record.Record{Stage: record.StageCreated, PID: 7}, found{sameBoot: true, held: true, alive: true}, actTakeOver},
		"ended meanwhile":                 {running, found{sameBoot: true, held: true, journalled: true}, actTakeOver},
		"ended before, not drained":       {exited, found{sameBoot: true, held: true, journalled: true}, actTakeOver},
		"ended before":                    {exited, found{sameBoot: true, journalled: true}, actKeep},
		"program cannot be executed":      {record.Record{Stage: record.StageCreated, StartError: "x"}, found{sameBoot: true}, actKeep},
		"keeper died too, runs":           {running, found{sameBoot: true, alive: true}, actAdopt},
		"keeper died too, exit journal":   {running, found{sameBoot: true, journalled: true}, actConclude},
		"keeper died too, ended":          {running, found{sameBoot: true}, actLost},
		"machine restarted, same pid":     {running, found{sameBoot: false, alive: true}, actLost},
		"machine restarted, exited":       {exited, found{}, actKeep},
		"machine restarted while created": {record.Record{Stage: record.StageCreating}, found{}, actUndo},
	} {
		if got := decide(tc.r, tc.f); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
