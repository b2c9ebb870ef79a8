package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"monopod.dev/monopod/test/vm/guest"
	"monopod.dev/monopod/test/vm/machine"
)

// job is a machine's work, built.
type job struct {
	packages []testPackage
	files    map[string]string
	script   string
	dir      string // what was built
	err      error
}

// runAll builds the tests machine by machine and runs as many machines at a time as wanted; the first run while the next are built.
func runAll(ctx context.Context, o options, f fixtures, dir string, machines [][]testPackage, r *report) {
	jobs := make(chan job)
	go func() {
		defer close(jobs)
		for i, packages := range machines {
			jobs <- buildJob(ctx, o, fmt.Sprintf("%s-%d", dir, i), packages)
		}
	}()
	var running sync.WaitGroup
	for range o.machines {
		running.Go(func() {
			for j := range jobs {
				runJob(ctx, o, f, j, r)
				_ = os.RemoveAll(j.dir) // it is below the folder that is removed in the end
			}
		})
	}
	running.Wait()
}

func buildJob(ctx context.Context, o options, dir string, packages []testPackage) job {
	j := job{packages: packages, files: map[string]string{}, dir: dir}
	if j.err = os.MkdirAll(dir, 0o755); j.err != nil {
		return j
	}
	for _, p := range packages {
		t := machine.Tests{Package: "./" + p.name, Args: []string{"-test.v=test2json", "-test.timeout=" + o.timeout.String()}}
		if p.cgo {
			t.Cgo, t.Tags = true, o.tags
		}
		if o.filter != "" {
			t.Args = append(t.Args, "-test.run="+o.filter)
		}
		files, command, err := t.Build(ctx, dir)
		if err != nil {
			j.err = err
			return j
		}
		maps.Copy(j.files, files)
		j.script += fmt.Sprintf("printf '\\n\\026%s %%s\\n' %s\n(%s)\nprintf '\\n\\026%s %%d\\n' $?\n", beginWord, p.name, command, endWord)
	}
	return j
}

// runJob runs the packages of a machine, and reports each of them, whatever happens.
func runJob(ctx context.Context, o options, f fixtures, j job, r *report) {
	s := &stream{r: r, packages: j.packages}
	defer func() { s.missing(j.err) }()
	if j.err != nil {
		return
	}
	files := maps.Clone(f.files)
	maps.Copy(files, j.files)
	limit := o.timeout*time.Duration(len(j.packages)) + time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the machine has run for %s", limit))
	defer cancel()
	res, err := machine.Run(ctx, machine.Config{
		Cache: machine.DefaultCache(), Init: f.init, Files: files, Output: s, Modules: f.modules,
		Job: guest.Job{Args: []string{"sh", "-c", j.script}, Env: append([]string{machine.SlowVariable + "=" + strconv.Itoa(o.slow)}, f.env...)},
	})
	if j.err = err; err == nil {
		j.err = fmt.Errorf("the machine's script ended with %d before it came to this package", res.Code)
	}
}

// Words that the machine's script puts before and after what a package prints, each after a byte that begins no line of a test's by itself.
const (
	beginWord = "monopod-vm-begin"
	endWord   = "monopod-vm-end"
	mark      = "\x16"
)

// stream takes a machine's output apart into that of its packages, which it reports one by one.
type stream struct {
	r        *report
	packages []testPackage

	line    []byte
	current *testPackage
	begin   time.Time
	output  bytes.Buffer
	log     *os.File // as it comes; nil: none
	ended   int
}

func (s *stream) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			s.line = append(s.line, rest...)
			break
		}
		s.line = append(s.line, rest[:i+1]...)
		s.take(s.line)
		s.line, rest = s.line[:0], rest[i+1:]
	}
	return len(p), nil
}

func (s *stream) take(line []byte) {
	word, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	switch word {
	case mark + beginWord:
		s.begin = time.Now()
		s.output.Reset()
		s.openLog(rest)
		for i := range s.packages {
			if s.packages[i].name == rest {
				s.current = &s.packages[i]
			}
		}
	case mark + endWord:
		code, err := strconv.Atoi(rest)
		if s.current == nil || err != nil {
			return
		}
		var failure error
		if code != 0 {
			failure = fmt.Errorf("exit code %d", code)
		}
		s.r.add(*s.current, s.output.Bytes(), time.Since(s.begin), failure)
		s.closeLog()
		s.current = nil
		s.ended++
	default:
		if s.current != nil {
			s.output.Write(line)
			if s.log != nil {
				_, _ = s.log.Write(bytes.ReplaceAll(line, []byte(mark), nil)) // it is for looking on; the report does not need it
			}
		}
	}
}

// openLog opens the file in which one can see what a package prints while it runs.
func (s *stream) openLog(name string) {
	s.closeLog()
	if f, err := os.Create(filepath.Join(s.r.logs, strings.ReplaceAll(name, "/", "-")+".log")); err == nil {
		s.log = f
	}
}

func (s *stream) closeLog() {
	if s.log != nil {
		_ = s.log.Close()
		s.log = nil
	}
}

// missing reports the packages that have not ended, and why.
func (s *stream) missing(why error) {
	s.closeLog()
	for _, p := range s.packages[s.ended:] {
		var output []byte
		var took time.Duration
		if s.current != nil && s.current.name == p.name {
			output, took = append(s.output.Bytes(), s.line...), time.Since(s.begin)
		}
		s.r.add(p, output, took, why)
	}
}
