package crash

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// postgres is a connection to a PostgreSQL that trusts everybody, by its protocol of version 3.0 ("Frontend/Backend Protocol" in its documentation): as much of it as
// rows need.
type postgres struct {
	conn net.Conn
	in   *bufio.Reader
}

const (
	postgresPort    = "5432"
	protocolVersion = 3 << 16
	// longestMessage is more than any that is expected.
	longestMessage = 1 << 20
	// answerIn is how long an answer may take: a busy disk syncs slowly.
	answerIn = 60 * time.Second
)

// dialPostgres connects to the database postgres as its user postgres.
func dialPostgres(address string) (*postgres, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(address, postgresPort), 5*time.Second)
	if err != nil {
		return nil, err
	}
	p := &postgres{conn, bufio.NewReader(conn)}
	hello := binary.BigEndian.AppendUint32(nil, protocolVersion)
	hello = append(hello, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	if _, err := p.ask(append(binary.BigEndian.AppendUint32(nil, uint32(len(hello)+4)), hello...)); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *postgres) close() { _ = p.conn.Close() }

// query runs one statement. Without an error what it has changed is committed. The rows' columns are those of all rows, one after the other.
func (p *postgres) query(statement string) (columns []string, err error) {
	message := append([]byte{'Q'}, binary.BigEndian.AppendUint32(nil, uint32(len(statement)+5))...)
	return p.ask(append(append(message, statement...), 0))
}

// ask sends a message and reads until the server is ready for the next one.
func (p *postgres) ask(message []byte) (columns []string, err error) {
	if err := p.conn.SetDeadline(time.Now().Add(answerIn)); err != nil {
		return nil, err
	}
	if _, err := p.conn.Write(message); err != nil {
		return nil, err
	}
	var said error
	for {
		var head [5]byte
		if _, err := io.ReadFull(p.in, head[:]); err != nil {
			return nil, errors.Join(said, err)
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size < 4 || size > longestMessage {
			return nil, fmt.Errorf("a message %q of %d bytes", head[0], size)
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(p.in, body); err != nil {
			return nil, errors.Join(said, err)
		}
		switch head[0] {
		case 'Z': // ready
			return columns, said
		case 'E':
			said = refusal(body)
		case 'R':
			if len(body) < 4 || binary.BigEndian.Uint32(body) != 0 {
				return nil, errors.New("it does not trust everybody")
			}
		case 'D':
			row, err := dataRow(body)
			if err != nil {
				return nil, err
			}
			columns = append(columns, row...)
		}
	}
}

// refusal is the text of an error: fields of a letter and a string each.
func refusal(body []byte) error {
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if len(field) > 1 && field[0] == 'M' {
			return fmt.Errorf("the database says: %s", field[1:])
		}
	}
	return errors.New("the database refuses, and does not say why")
}

func dataRow(body []byte) (columns []string, err error) {
	short := errors.New("a row that ends too early")
	if len(body) < 2 {
		return nil, short
	}
	count := int(binary.BigEndian.Uint16(body))
	for body = body[2:]; count > 0; count-- {
		if len(body) < 4 {
			return nil, short
		}
		size := int(int32(binary.BigEndian.Uint32(body)))
		body = body[4:]
		if size < 0 || size > len(body) {
			return nil, short
		}
		columns = append(columns, string(body[:size]))
		body = body[size:]
	}
	return columns, nil
}
