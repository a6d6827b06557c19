//! The well-known providers: where they are, whose key they take, what is special about them.

use crate::protocol::Protocol;
use agent_base::error::{Error, Result};

/// Facts about a provider that are known beforehand. Everything else is learned from its answers.
#[derive(Debug, PartialEq, Eq)]
pub struct Provider {
    /// The name, as `--provider` takes it.
    pub name: &'static str,
    /// The base URL; empty for [`GENERIC`].
    pub base_url: &'static str,
    /// The protocol that it is asked in where none is configured.
    pub protocol: Protocol,
    /// The base URL of another protocol, where it has one of its own.
    pub other_base_urls: &'static [(Protocol, &'static str)],
    /// The header of the key, where it is not that of the protocol: `x-api-key` for Messages, `Authorization: Bearer` otherwise.
    pub key_header: Option<&'static str>,
    /// Variables that may hold the key, the first one that is set counts. Empty where no key is needed.
    pub key_variables: &'static [&'static str],
    /// A model to take where none is named.
    pub default_model: Option<&'static str>,
    /// Under which name the reasoning is sent back beside tool calls, where the provider wants that.
    pub reasoning_echo: Option<&'static str>,
    /// Set if it takes `stream_options`.
    pub stream_options: bool,
    /// Context windows in tokens, by the beginning of the model's name. Only what the provider documents.
    pub context_windows: &'static [(&'static str, u64)],
}

impl Provider {
    /// The context window of `model` in tokens, where it is certain.
    pub fn context_window(&self, model: &str) -> Option<u64> {
        let longest = self.context_windows.iter().filter(|(prefix, _)| model.starts_with(prefix));
        longest.max_by_key(|(prefix, _)| prefix.len()).map(|(_, window)| *window)
    }

    /// The base URL for a protocol.
    pub fn base_url_of(&self, protocol: Protocol) -> &'static str {
        let other = self.other_base_urls.iter().find(|(of, _)| *of == protocol);
        other.map_or(self.base_url, |(_, base_url)| base_url)
    }

    /// Returns whether it runs on the user's own machine and needs no key.
    pub fn is_local(&self) -> bool {
        self.base_url.starts_with("http://")
    }
}

/// An endpoint of which nothing is known but that it is OpenAI-compatible.
pub static GENERIC: Provider = Provider {
    name: "custom",
    base_url: "",
    protocol: Protocol::Chat,
    other_base_urls: &[],
    key_header: None,
    key_variables: &[],
    default_model: None,
    reasoning_echo: None,
    stream_options: true,
    context_windows: &[],
};

/// Every provider that `--provider` knows.
pub static ALL: &[Provider] = &[
    Provider {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        // Its newer models reason from one call to the next only there.
        protocol: Protocol::Responses,
        key_variables: &["OPENAI_API_KEY"],
        // https://platform.openai.com/docs/models
        context_windows: &[
            ("gpt-5", 400_000),
            ("gpt-4.1", 1_047_576),
            ("gpt-4o", 128_000),
            ("gpt-4-turbo", 128_000),
            ("gpt-3.5-turbo", 16_385),
            ("o1", 200_000),
            ("o3", 200_000),
            ("o4-mini", 200_000),
        ],
        ..GENERIC
    },
    Provider {
        name: "novita",
        base_url: "https://api.novita.ai/openai/v1",
        key_variables: &["NOVITA_API_KEY"],
        ..GENERIC
    },
    Provider {
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        other_base_urls: &[(Protocol::Messages, "https://api.deepseek.com/anthropic")],
        key_variables: &["DEEPSEEK_API_KEY"],
        default_model: Some("deepseek-chat"),
        // https://api-docs.deepseek.com/guides/thinking_mode: in a run of tool calls the reasoning goes back.
        reasoning_echo: Some("reasoning_content"),
        ..GENERIC
    },
    Provider {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        key_variables: &["OPENROUTER_API_KEY"],
        ..GENERIC
    },
    Provider {
        name: "together",
        base_url: "https://api.together.xyz/v1",
        key_variables: &["TOGETHER_API_KEY"],
        ..GENERIC
    },
    Provider {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        key_variables: &["GROQ_API_KEY"],
        ..GENERIC
    },
    // https://docs.claude.com/en/api/messages
    Provider {
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        protocol: Protocol::Messages,
        key_variables: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        ..GENERIC
    },
    // https://ai.google.dev/gemini-api/docs/openai
    Provider {
        name: "gemini",
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables: &["GEMINI_API_KEY"],
        ..GENERIC
    },
    // https://docs.mistral.ai/api
    Provider {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        key_variables: &["MISTRAL_API_KEY"],
        ..GENERIC
    },
    // https://docs.x.ai/docs/api-reference
    Provider { name: "xai", base_url: "https://api.x.ai/v1", key_variables: &["XAI_API_KEY"], ..GENERIC },
    // https://platform.moonshot.ai/docs
    Provider {
        name: "moonshot",
        base_url: "https://api.moonshot.ai/v1",
        other_base_urls: &[(Protocol::Messages, "https://api.moonshot.ai/anthropic")],
        key_variables: &["MOONSHOT_API_KEY"],
        ..GENERIC
    },
    // https://docs.z.ai/api-reference
    Provider {
        name: "zai",
        base_url: "https://api.z.ai/api/paas/v4",
        other_base_urls: &[(Protocol::Messages, "https://api.z.ai/api/anthropic")],
        key_variables: &["ZAI_API_KEY"],
        ..GENERIC
    },
    // https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope
    Provider {
        name: "dashscope",
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_variables: &["DASHSCOPE_API_KEY"],
        ..GENERIC
    },
    // https://www.minimax.io/platform
    Provider {
        name: "minimax",
        base_url: "https://api.minimax.io/v1",
        other_base_urls: &[(Protocol::Messages, "https://api.minimax.io/anthropic")],
        key_variables: &["MINIMAX_API_KEY"],
        ..GENERIC
    },
    // https://docs.fireworks.ai/tools-sdks/openai-compatibility
    Provider {
        name: "fireworks",
        base_url: "https://api.fireworks.ai/inference/v1",
        key_variables: &["FIREWORKS_API_KEY"],
        ..GENERIC
    },
    // https://inference-docs.cerebras.ai/openai
    Provider {
        name: "cerebras",
        base_url: "https://api.cerebras.ai/v1",
        key_variables: &["CEREBRAS_API_KEY"],
        ..GENERIC
    },
    // https://huggingface.co/docs/inference-providers
    Provider {
        name: "huggingface",
        base_url: "https://router.huggingface.co/v1",
        key_variables: &["HF_TOKEN"],
        ..GENERIC
    },
    Provider { name: "ollama", base_url: "http://localhost:11434/v1", ..GENERIC },
    Provider { name: "lmstudio", base_url: "http://localhost:1234/v1", ..GENERIC },
    Provider { name: "vllm", base_url: "http://localhost:8000/v1", ..GENERIC },
    Provider { name: "llamacpp", base_url: "http://localhost:8080/v1", ..GENERIC },
    // https://docs.litellm.ai/docs/proxy/quick_start
    Provider { name: "litellm", base_url: "http://localhost:4000/v1", ..GENERIC },
];

/// The provider called `name`.
///
/// # Errors
/// `Config` where there is none; the hint lists them.
pub fn find(name: &str) -> Result<&'static Provider> {
    ALL.iter().find(|provider| provider.name.eq_ignore_ascii_case(name.trim())).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|provider| provider.name).collect();
        Error::config(format!("there is no provider called {name:?}"))
            .hint(format!("the known ones are {}; any other is named with --base-url", names.join(", ")))
    })
}

/// The provider whose host an address names, so that `--base-url` alone gets its quirks right.
pub fn of_base_url(base_url: &str) -> &'static Provider {
    let host = |url: &str| reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let asked = host(base_url);
    ALL.iter().filter(|provider| !provider.is_local()).find(|p| host(p.base_url) == asked).unwrap_or(&GENERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_found_by_name_and_by_address() {
        assert_eq!(find("DeepSeek").unwrap().name, "deepseek");
        assert!(find("nobody").unwrap_err().hint_text().unwrap().contains("openrouter"));
        assert_eq!(of_base_url("https://api.deepseek.com/beta").name, "deepseek");
        assert_eq!(of_base_url("http://localhost:8000/v1").name, "custom");
    }

    #[test]
    fn every_preset_is_already_normalised() {
        for provider in ALL {
            assert_eq!(crate::Endpoint::new(provider.base_url, "m").unwrap().base_url, provider.base_url);
        }
    }

    /// Otherwise a provider's key would go to another host with another protocol.
    #[test]
    fn every_base_url_of_a_provider_is_on_one_host() {
        let host = |url: &str| reqwest::Url::parse(url).unwrap().host_str().unwrap().to_owned();
        for provider in ALL {
            for (protocol, base_url) in provider.other_base_urls {
                assert_eq!(host(base_url), host(provider.base_url), "{}", provider.name);
                assert_eq!(provider.base_url_of(*protocol), *base_url);
            }
        }
    }

    #[test]
    fn the_longest_name_decides_the_window() {
        let openai = find("openai").unwrap();
        assert_eq!(openai.context_window("gpt-4.1-mini"), Some(1_047_576));
        assert_eq!(openai.context_window("gpt-4"), None);
    }
}
