package gotest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Event is a line of `go test -json`: of a test (`go doc test2json`), or of a build (`go help buildjson`).
type Event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string
	FailedBuild string
}

// read tells each event to take, in order, and each line that is no event to other: a tool that the go command runs may print one.
func read(r io.Reader, take func(Event), other io.Writer) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n') // of any length: tests print what they like
		if text := bytes.TrimSpace(line); len(text) > 0 {
			var e Event
			if text[0] != '{' || json.Unmarshal(text, &e) != nil || e.Action == "" {
				if _, err := other.Write(line); err != nil {
					return err
				}
			} else {
				take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}
