//go:build cgo

// Package placeholder makes a process that does nothing, to be in a place where there must be one: systemd makes no scope without.
//
// The process is this very program, branched off in C before Go's runtime starts. It lives no longer than who made it.
package placeholder

import "C" // makes placeholder.c part of the program

import (
	"fmt"
	"os"
)

// Name is the process's argv[0], as placeholder.c has it too.
const Name = "monopod:placeholder"

// Process is a placeholder that lives.
type Process struct {
	end     *os.File // whose closing, by whomever, ends it
	process *os.Process
}

// Start starts one.
func Start() (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		w.Close()
		return nil, err
	}
	defer null.Close()
	p, err := os.StartProcess("/proc/self/exe", []string{Name}, &os.ProcAttr{Dir: "/", Env: []string{}, Files: []*os.File{r, null, null}})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("start a placeholder: %w", err)
	}
	return &Process{end: w, process: p}, nil
}

// Pid is its pid, which is its own until Close.
func (p *Process) Pid() int { return p.process.Pid }

// Close ends it, and returns when it has ended.
func (p *Process) Close() error {
	p.end.Close()
	_ = p.process.Kill() // it may be in a cgroup that is frozen or has no time to run; else it ends by itself
	_, err := p.process.Wait()
	return err
}
