package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	// maxMessage is how long a message may be, in bytes.
	maxMessage = 280
	// maxEntries is how many entries there may be.
	maxEntries = 1000
)

// entry is what somebody has written, a line of JSON in the store's file.
type entry struct {
	Message string `json:"message"`
	// Dice is 1 to 6, thrown with the device; 0: the store had none.
	Dice int `json:"dice,omitempty"`
}

// store keeps the entries: an entry is in the file, on the disk, before anybody is told of it.
type store struct {
	dice string

	mu      sync.Mutex
	file    *os.File
	entries []entry
}

// openStore reads the entries of a directory, which is made if need be. A last line that has no end was cut by a crash, and nobody was told of it: it goes.
func openStore(dir, dice string) (*store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "entries"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	s := &store{dice: dice, file: f}
	raw, err := io.ReadAll(f)
	if err == nil {
		whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
		if err = s.read(whole); err == nil && len(whole) < len(raw) {
			err = f.Truncate(int64(len(whole)))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the entries in %s: %w", f.Name(), err), f.Close())
	}
	return s, nil
}

func (s *store) read(raw []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		s.entries = append(s.entries, e)
	}
	return lines.Err()
}

func (s *store) close() error { return s.file.Close() }

func (s *store) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /entries", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		all := s.entries
		s.mu.Unlock()
		answer(w, http.StatusOK, append([]entry{}, all...))
	})
	mux.HandleFunc("POST /entries", func(w http.ResponseWriter, r *http.Request) {
		message := strings.Join(strings.Fields(r.PostFormValue("message")), " ")
		if message == "" || len(message) > maxMessage {
			http.Error(w, fmt.Sprintf("a message of %d bytes: say something, in at most %d", len(message), maxMessage), http.StatusBadRequest)
			return
		}
		e, err := s.add(message)
		if err != nil {
			fmt.Fprintln(os.Stderr, "guestbook:", err)
			http.Error(w, err.Error(), http.StatusInsufficientStorage)
			return
		}
		fmt.Println("signed:", message)
		answer(w, http.StatusCreated, e)
	})
	mux.HandleFunc("GET /healthz", healthy)
	return http.MaxBytesHandler(mux, 8*maxMessage)
}

// add writes an entry down.
func (s *store) add(message string) (entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) >= maxEntries {
		return entry{}, fmt.Errorf("the guestbook is full: it has %d entries", maxEntries)
	}
	dice, err := throw(s.dice)
	if err != nil {
		return entry{}, err
	}
	e := entry{Message: message, Dice: dice}
	line, err := json.Marshal(e)
	if err != nil {
		return entry{}, err
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return entry{}, err
	}
	if err := s.file.Sync(); err != nil {
		return entry{}, err
	}
	s.entries = append(s.entries, e)
	return e, nil
}

// throw makes a number from 1 to 6 of the bytes of a device, each as likely as any other; 0 where there is no such device.
func throw(device string) (int, error) {
	f, err := os.Open(device)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(f, b); err != nil {
			return 0, fmt.Errorf("throw %s: %w", device, err)
		}
		if b[0] < 252 { // the largest multiple of 6
			return int(b[0])%6 + 1, nil
		}
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func healthy(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
