// Writer says how fast a file can be written, as BenchmarkClaimDisk asks:
//
//	writer FILE
//
// For three seconds it writes 256 MB anew, in blocks of 1 MB, and syncs them, and then for three seconds it rewrites 4 kB here and there, with a sync for each. It
// removes the file, and prints both as JSON.
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
	// step is how many pages lie between two writes: those side by side would be one for the disk.
	step  = 37
	least = 3 * time.Second
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
	begin, streams := time.Now(), 0
	for ; time.Since(begin) < least; streams++ {
		if err := stream(f, data); err != nil {
			return err
		}
	}
	streamed, syncs := time.Since(begin), 0
	for begin = time.Now(); time.Since(begin) < least; syncs++ {
		if _, err := f.WriteAt(data[:page], int64(syncs*step%pages)*page); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"MBPerSecond":    float64(block*blocks*streams) / 1e6 / streamed.Seconds(),
		"SyncsPerSecond": float64(syncs) / time.Since(begin).Seconds(),
	})
}

// stream writes a file from its beginning, with room that it has to get anew.
func stream(f *os.File, data []byte) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	for i := range blocks {
		if _, err := f.WriteAt(data, int64(i)*block); err != nil {
			return err
		}
	}
	return f.Sync()
}
