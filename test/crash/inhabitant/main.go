// Inhabitant is what runs in the pods of TestRandomDeaths. It writes down what it has seen in the folder that its pods share, where no death of monopod
// takes it away, and answers each line and each datagram to port 8080.
//
//	inhabitant serve      until SIGTERM
//	inhabitant work       for a moment, as a part of the job WORK
//	inhabitant fail       for a moment, with the exit code 1
//
// Its environment: UID, POD and APP of the pod; LOCK, what only one may have at a time; GUARDED, who may hear of no
// thief, and, if it is "all", of nobody. An index of a job is a lock, too.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const out = "/out"

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(what string) error {
	me := os.Getenv("UID") + " " + os.Getenv("POD")
	key, index := os.Getenv("LOCK"), "-"
	if i, ok := os.LookupEnv("JOB_COMPLETION_INDEX"); ok {
		key, index = os.Getenv("WORK")+"-"+i, i
	}
	if key != "" {
		held, err := lock(key)
		if held != nil {
			defer held.Close() // its end is the lock's
		}
		if err != nil {
			if err := note("faults", fmt.Sprintf("a second one of %s runs: %s: %v", key, me, err)); err != nil {
				return err
			}
		}
	}
	// Whoever is told to end right now ends behind the note.
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	if err := note("starts", me); err != nil {
		return err
	}
	moment := time.Duration(time.Now().UnixNano() % int64(300*time.Millisecond))
	switch what {
	case "work":
		<-time.After(moment)
		return note("work", os.Getenv("WORK")+" "+index+" "+me)
	case "fail":
		<-time.After(moment)
		return errors.New("it fails, as it should")
	}
	if err := serve(); err != nil {
		return err
	}
	<-end
	if os.Getenv("GUARDED") == "all" {
		if heard := datagrams(); heard != "0 0" {
			return note("faults", fmt.Sprintf("%s has got datagrams from its first moment on, with and without a listener: %s", me, heard))
		}
	}
	return nil
}

// lock takes what only one may have at a time, until the file is closed.
func lock(key string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(out, "lock-"+key), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// note appends a line to a file; so short a write is whole.
func note(file, line string) error {
	f, err := os.OpenFile(filepath.Join(out, file), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// serve answers who it is, and what it was told.
func serve() error {
	me := os.Getenv("APP") + " " + os.Getenv("POD")
	answer := func(line string, from net.Addr) string {
		if os.Getenv("GUARDED") != "" && strings.HasPrefix(line, "thief") {
			_ = note("faults", fmt.Sprintf("%s has heard %q from %s", me, line, from))
		}
		return me + " " + line + "\n"
	}
	l, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", ":8080")
	if err != nil {
		return err
	}
	go func() {
		for buf := make([]byte, 1500); ; {
			if n, from, err := p.ReadFrom(buf); err == nil {
				_, _ = p.WriteTo([]byte(answer(strings.TrimSpace(string(buf[:n])), from)), from)
			}
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				continue
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := c.Write([]byte(answer(lines.Text(), c.RemoteAddr()))); err != nil {
						return
					}
				}
			}()
		}
	}()
	return nil
}

// datagrams is how many have come to ports with and without a listener (proc_pid_net(5), snmp).
func datagrams() string {
	raw, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return err.Error()
	}
	var udp [][]string
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); f[0] == "Udp:" {
			udp = append(udp, f)
		}
	}
	if len(udp) != 2 || len(udp[0]) != len(udp[1]) || len(udp[0]) < 3 || udp[0][1] != "InDatagrams" || udp[0][2] != "NoPorts" {
		return fmt.Sprintf("/proc/net/snmp tells of no UDP: %v", udp)
	}
	return udp[1][1] + " " + udp[1][2]
}
