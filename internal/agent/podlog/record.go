package podlog

import (
	"bytes"
	"time"
)

// record is one line of a log file.
type record struct {
	// stamp is the time as it is written, time what it means; a line that is not a record has neither.
	stamp  []byte
	time   time.Time
	stream string
	// partial: the line that the container wrote goes on.
	partial bool
	// content is without the line's end.
	content []byte
}

// parse reads one line of a log file, with or without its end. It keeps line's memory.
func parse(line []byte) record {
	line = bytes.TrimSuffix(line, []byte("\n"))
	stamp, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return record{content: line}
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return record{content: line}
	}
	stream, rest, ok := bytes.Cut(rest, []byte(" "))
	if !ok || string(stream) != "stdout" && string(stream) != "stderr" {
		return record{content: line}
	}
	// A record without content may end with its tag.
	tags, content, _ := bytes.Cut(rest, []byte(" "))
	// Further tags may follow the first, separated by colons.
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	switch string(tag) {
	case "P":
		return record{stamp: stamp, time: t, stream: string(stream), partial: true, content: content}
	case "F":
		return record{stamp: stamp, time: t, stream: string(stream), content: content}
	}
	return record{content: line}
}
