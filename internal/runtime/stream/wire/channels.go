package wire

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Subprotocols of WebSockets with channels.
const (
	v4Channels       = "v4." + wsstream.ChannelWebSocketProtocol
	v4Base64Channels = "v4." + wsstream.Base64ChannelWebSocketProtocol
)

// channels is a WebSocket whose messages each begin with a channel's number.
type channels struct {
	ws       *websocket.Conn
	session  *session
	protocol string
	base64   bool

	// Of the reader: where each channel's data goes; nil is thrown away.
	sinks []*io.PipeWriter

	writing sync.Mutex
}

// upgradeWebSocket takes the connection over with the first of the client's subprotocols that is served; "" stands for none
// being asked for.
func (s *session) upgradeWebSocket(served ...string) (ws *websocket.Conn, protocol string, err error) {
	protocols := offered(s.req.Header, wsstream.WebSocketProtocolHeader)
	if len(protocols) == 0 {
		protocols = []string{""}
	}
	protocol, ok := pickProtocol(protocols, served...)
	if !ok {
		return nil, "", s.refuse(http.StatusForbidden, "the client offers the WebSocket subprotocols %q, served are %q", protocols, served)
	}
	// The package's doc says why the origin does not matter.
	u := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	header := http.Header{}
	if protocol != "" {
		header.Set(wsstream.WebSocketProtocolHeader, protocol)
	}
	ws, err = u.Upgrade(s, s.req, http.Header{"Sec-Websocket-Protocol": header.Values(wsstream.WebSocketProtocolHeader)})
	return ws, protocol, err
}

func newChannels(s *session, ws *websocket.Conn, protocol string, sinks []*io.PipeWriter) *channels {
	ping := func() { _ = ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)) }
	s.ping.Store(&ping)
	return &channels{ws: ws, session: s, protocol: protocol, base64: strings.Contains(protocol, wsstream.Base64ChannelWebSocketProtocol), sinks: sinks}
}

// read serves what the client sends, until it is gone.
func (c *channels) read() {
	defer func() {
		c.session.end(ErrClientGone)
		for _, sink := range c.sinks {
			if sink != nil {
				sink.Close()
			}
		}
	}()
	for {
		_, message, err := c.ws.NextReader()
		if err != nil {
			return
		}
		if err := c.receive(message); err != nil {
			c.session.log.Debug("a WebSocket is closed", "error", err)
			_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseProtocolError, err.Error()), time.Now().Add(time.Second))
			return
		}
	}
}

// receive takes one message. Data that nobody wants is left in it.
func (c *channels) receive(message io.Reader) error {
	var head [1]byte
	if _, err := io.ReadFull(message, head[:]); err != nil {
		return nil // empty: some clients keep the connection alive in this way
	}
	n := head[0]
	if c.protocol == remotecommand.StreamProtocolV5Name && n == remotecommand.StreamClose {
		return c.closeChannel(message)
	}
	if c.base64 {
		n -= '0'
		message = base64.NewDecoder(base64.StdEncoding, message)
	}
	if int(n) >= len(c.sinks) || c.sinks[n] == nil {
		return nil
	}
	c.session.touch()
	_, err := io.Copy(c.sinks[n], message)
	var corrupt base64.CorruptInputError
	if errors.As(err, &corrupt) {
		return err
	}
	return nil // nobody reads the channel any more, or NextReader will say what is wrong with the connection
}

// closeChannel ends what a client sends on one channel (v5).
func (c *channels) closeChannel(message io.Reader) error {
	var n [2]byte
	if got, err := io.ReadFull(message, n[:]); got != 1 || !errors.Is(err, io.ErrUnexpectedEOF) || int(n[0]) >= len(c.sinks) {
		return errors.New("a close signal must name one channel that there is")
	}
	if sink := c.sinks[n[0]]; sink != nil {
		sink.Close()
	}
	return nil
}

// writer makes the writer of a channel: a message a call.
func (c *channels) writer(channel byte) io.Writer { return channelWriter{c, channel} }

type channelWriter struct {
	*channels
	channel byte
}

func (w channelWriter) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.base64 {
		text := base64.StdEncoding.AppendEncode([]byte{'0' + w.channel}, p)
		if err := w.ws.WriteMessage(websocket.TextMessage, text); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	m, err := w.ws.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return 0, err
	}
	_, err = m.Write([]byte{w.channel})
	n := 0
	if err == nil {
		n, err = m.Write(p)
	}
	return n, errors.Join(err, m.Close())
}

// bye ends the WebSocket as its protocol has it.
func (c *channels) bye() {
	err := c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(lastWords))
	if err == nil {
		c.session.goodbye(nil)
	}
}

// channelCommand is one process's streams over a WebSocket.
type channelCommand struct {
	*channels
	client Streams
}

// openChannels upgrades the request to a WebSocket with the standard channels: 0 stdin, 1 stdout, 2 stderr, 3 error, 4 resize.
func (s *session) openChannels(opts options) (transport, error) {
	ws, protocol, err := s.upgradeWebSocket("", wsstream.ChannelWebSocketProtocol, wsstream.Base64ChannelWebSocketProtocol,
		v4Channels, v4Base64Channels, remotecommand.StreamProtocolV5Name)
	if err != nil {
		return nil, err
	}
	sinks := make([]*io.PipeWriter, remotecommand.StreamResize+1)
	c := &channelCommand{channels: newChannels(s, ws, protocol, sinks)}
	// The first message says that the connection is there, to clients that wait for it.
	first := byte(remotecommand.StreamErr)
	if opts.stderr {
		first = remotecommand.StreamStdErr
		c.client.Stderr = touching{session: s, Writer: c.writer(first)}
	}
	if opts.stdout {
		first = remotecommand.StreamStdOut
		c.client.Stdout = touching{session: s, Writer: c.writer(first)}
	}
	if opts.stdin {
		c.client.Stdin, sinks[remotecommand.StreamStdIn] = io.Pipe()
	}
	if opts.tty {
		var sizes *io.PipeReader
		sizes, sinks[remotecommand.StreamResize] = io.Pipe()
		newest := make(chan Size, 1)
		c.client.Sizes = newest
		s.work.Go(func() { readSizes(sizes, newest) })
	}
	if _, err := c.writer(first).Write(nil); err != nil {
		return nil, err
	}
	s.work.Go(c.read)
	return c, nil
}

func (c *channelCommand) process() Streams { return c.client }

// finish implements transport.
func (c *channelCommand) finish(how metav1.Status) {
	_ = c.session.conn.SetWriteDeadline(time.Now().Add(lastWords))
	structured := strings.HasPrefix(c.protocol, "v")
	if raw := encodeStatus(how, structured); len(raw) > 0 {
		if _, err := c.writer(remotecommand.StreamErr).Write(raw); err != nil {
			c.session.log.Debug("a client may not know how its process ended", "error", err)
			return
		}
	}
	c.bye()
}
