package server

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"monopod.dev/monopod/internal/dns/answer"
	"monopod.dev/monopod/internal/dns/message"
)

// handle answers one query with send, if it is one. limit is how large a reply may be. What has to wait for others is handed to later.
func (s *Server) handle(raw []byte, client netip.Addr, limit func(*message.Query) int, send func([]byte), later func(func(context.Context))) {
	q, err := message.Parse(raw)
	var refusal *message.Refusal
	switch {
	case errors.As(err, &refusal):
		s.sendPacked(send)(message.Refuse(&refusal.Query, refusal.RCode))
		return
	case err != nil:
		return // nobody can be answered
	}
	room := limit(&q)
	reply := s.cfg.Zone.Answer(q.Question, s.cfg.View, q.ID)
	switch reply.Outcome {
	case answer.Answered:
		s.sendPacked(send)(own(reply).Pack(&q, room))
		return
	case answer.Elsewhere:
		if known, age, ok := s.cfg.Upstream.Cached(&q); ok {
			s.sendPacked(send)(known.Relay(&q, room, age))
			return
		}
	case answer.PodAddress:
		if s.cfg.Pods == nil {
			s.sendPacked(send)(own(s.cfg.Zone.Missing(s.cfg.View)).Pack(&q, room))
			return
		}
	case answer.Alias:
	}
	if !s.waiting.take(client) {
		s.sendPacked(send)(failure().Pack(&q, room))
		return
	}
	later(func(ctx context.Context) {
		defer s.waiting.give(client)
		s.sendPacked(send)(s.find(ctx, &q, reply, room))
	})
}

// sendPacked sends what could be written; what could not is a fault of ours, of which the client hears nothing.
func (s *Server) sendPacked(send func([]byte)) func([]byte, error) {
	return func(raw []byte, err error) {
		if err != nil {
			s.log.Warn("a reply could not be written", "error", err)
			return
		}
		send(raw)
	}
}

func own(r answer.Reply) *message.Reply {
	return &message.Reply{RCode: r.RCode, Authoritative: r.RCode != dnsmessage.RCodeRefused, Answers: r.Answers, Authority: r.Authority, Additional: r.Additional}
}

func failure() *message.Reply { return &message.Reply{RCode: dnsmessage.RCodeServerFailure} }

// find answers with what others know.
func (s *Server) find(ctx context.Context, q *message.Query, reply answer.Reply, room int) ([]byte, error) {
	switch reply.Outcome {
	case answer.PodAddress:
		has, err := s.cfg.Pods.HasPod(ctx, reply.Namespace, reply.Pod)
		switch {
		case err != nil:
			s.log.Debug("a pod could not be looked for", "address", reply.Pod, "namespace", reply.Namespace, "error", err)
			return failure().Pack(q, room)
		case !has:
			reply = s.cfg.Zone.Missing(s.cfg.View)
		}
		return own(reply).Pack(q, room)
	case answer.Alias:
		return s.follow(ctx, q, reply, room)
	}
	found, age, err := s.cfg.Upstream.Ask(ctx, q)
	if err != nil {
		s.log.Debug("a question has no answer", "question", q.Question.Name, "error", err)
		return failure().Pack(q, room)
	}
	return found.Relay(q, room, age)
}

// follow adds what others say of the name that an alias leads to.
func (s *Server) follow(ctx context.Context, q *message.Query, reply answer.Reply, room int) ([]byte, error) {
	name, err := dnsmessage.NewName(reply.Target + ".")
	if err != nil {
		return failure().Pack(q, room)
	}
	target := *q
	target.Question.Name = name
	found, age, err := s.cfg.Upstream.Ask(ctx, &target)
	if err != nil {
		s.log.Debug("an alias leads to what has no answer", "question", q.Question.Name, "target", reply.Target, "error", err)
		return failure().Pack(q, room)
	}
	r := own(reply)
	more, err := found.Answers(age)
	if err != nil || found.Failed() {
		return failure().Pack(q, room)
	}
	// That the target does not exist is said of the name that was asked for, too (RFC 6604, section 3).
	r.RCode, r.Answers = found.RCode(), append(r.Answers, more...)
	return r.Pack(q, room)
}
