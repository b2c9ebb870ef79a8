package controllers_test

import (
	"bytes"
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
)

// TestSecretsOfAccounts: a secret that names an account gets its token, and gets it back; it goes with the account, and its token with it.
func TestSecretsOfAccounts(t *testing.T) {
	api := apitest.Start(t)
	api.Control(catalog.AccountTokens)
	ctx, core := t.Context(), api.Client.CoreV1()
	resource := corev1.SchemeGroupVersion.WithResource("secrets")
	account := func(name string) *corev1.ServiceAccount {
		t.Helper()
		a, err := core.ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Secrets: []corev1.ObjectReference{{Name: "bot"}, {Name: "other"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	secret := func(name, account string, uid types.UID) {
		t.Helper()
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}, Type: corev1.SecretTypeServiceAccountToken}
		if uid != "" {
			s.Annotations[corev1.ServiceAccountUIDKey] = string(uid)
		}
		if _, err := core.Secrets("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	filled := func(name string) *corev1.Secret {
		t.Helper()
		var s *corev1.Secret
		api.Await(resource, "default", name, "one that is filled", func(o *metav1.PartialObjectMetadata) bool {
			if o == nil {
				return false
			}
			var err error
			s, err = core.Secrets("default").Get(ctx, name, metav1.GetOptions{})
			return err == nil && len(s.Data["token"]) > 0
		})
		return s
	}
	who := func(token []byte) (string, error) {
		config := rest.AnonymousClientConfig(api.Config)
		config.BearerToken = string(token)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return userName(ctx, client)
	}

	robot := account("robot")
	secret("bot", "robot", "")
	bot := filled("bot")
	if string(bot.Data["namespace"]) != "default" || !bytes.Contains(bot.Data["ca.crt"], []byte("BEGIN CERTIFICATE")) || bot.Annotations[corev1.ServiceAccountUIDKey] != string(robot.UID) {
		t.Errorf("annotations %v, data %d", bot.Annotations, len(bot.Data))
	}
	if user, err := who(bot.Data["token"]); user != "system:serviceaccount:default:robot" {
		t.Errorf("the token is %q's, %v", user, err)
	}

	t.Run("it comes back", func(t *testing.T) {
		before := bot.Data["token"]
		bot.Data = nil
		if _, err := core.Secrets("default").Update(ctx, bot, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		bot = filled("bot")
		if _, err := who(before); err == nil {
			t.Error("a token that was taken from its secret is good")
		}
		if user, err := who(bot.Data["token"]); user != "system:serviceaccount:default:robot" {
			t.Errorf("the token is %q's, %v", user, err)
		}
	})
	t.Run("of another account of the name", func(t *testing.T) {
		secret("stale", "robot", "another")
		api.AwaitGone(resource, "default", "stale")
		secret("nobodys", "nobody", "")
		api.AwaitGone(resource, "default", "nobodys")
	})
	t.Run("it is deleted", func(t *testing.T) {
		if err := core.Secrets("default").Delete(ctx, "bot", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		api.AwaitGone(resource, "default", "bot")
		if _, err := who(bot.Data["token"]); err == nil {
			t.Error("the token of a secret that is gone is good")
		}
		api.Await(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "default", "robot", "one that does not name the secret", func(*metav1.PartialObjectMetadata) bool {
			a, err := core.ServiceAccounts("default").Get(ctx, "robot", metav1.GetOptions{})
			return err == nil && len(a.Secrets) == 1 && a.Secrets[0].Name == "other"
		})
	})
	t.Run("its account is deleted", func(t *testing.T) {
		secret("last", "robot", robot.UID)
		last := filled("last")
		if err := core.ServiceAccounts("default").Delete(ctx, "robot", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		api.AwaitGone(resource, "default", "last")
		if _, err := who(last.Data["token"]); err == nil {
			t.Error("the token of an account that is gone is good")
		}
	})
}

// userName is who the API server takes a client for.
func userName(ctx context.Context, client kubernetes.Interface) (string, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
