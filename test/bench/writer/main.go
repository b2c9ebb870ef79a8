// Writer says how fast a file can be written, as BenchmarkClaimDisk asks:
//
//	writer FILE
//
// It writes 256 MB in blocks of 1 MB and syncs them once, and then rewrites 4 kB so often as it can in two seconds, with a sync for each. It removes the file, and
// prints both as JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	block, blocks = 1 << 20, 256
	page, pages   = 4096, 4096
	syncing       = 2 * time.Second
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	data := make([]byte, block)
	for i := range data {
		data[i] = byte(i * 7)
	}
	begin := time.Now()
	for range blocks {
		if _, err := f.Write(data); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	streamed := time.Since(begin)
	syncs := 0
	for begin = time.Now(); time.Since(begin) < syncing; syncs++ {
		if _, err := f.WriteAt(data[:page], int64(syncs%pages)*page); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"MBPerSecond":    block * blocks / 1e6 / streamed.Seconds(),
		"SyncsPerSecond": float64(syncs) / time.Since(begin).Seconds(),
	})
}
