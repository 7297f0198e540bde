// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/output.h"

namespace gpushare::cli {
namespace {

struct OptionWords {
  std::vector<std::string> names;  // including the dashes
  std::string description;
  bool takes_value = false, is_path = false;
  std::vector<std::string> choices;
};
// A command and what can follow it.
struct CommandWords {
  std::string path;  // the words that lead to it; "" for gpushare itself
  std::vector<std::pair<std::string, std::string>> commands;  // name and description
  std::vector<OptionWords> options;
  std::vector<std::string> choices;  // values of positional arguments
};

// The words of "SOCKET|private|none" without those in capitals, which name a kind of value; none for SECONDS.
std::vector<std::string> ChoicesOf(const std::string& type) {
  if (!absl::StrContains(type, '|') || absl::StrContains(type, ' ')) return {};
  std::vector<std::string> words = absl::StrSplit(type, '|');
  std::erase_if(words, [](const std::string& word) {
    return std::all_of(word.begin(), word.end(), absl::ascii_isupper);
  });
  return words;
}

void Collect(const CLI::App& app, const std::string& path, std::vector<CommandWords>* out) {
  CommandWords words;
  words.path = path;
  for (const CLI::Option* option : app.get_options({})) {
    OptionWords each;
    for (const std::string& name : option->get_lnames()) each.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) each.names.push_back("-" + name);
    const std::string type = option->get_type_name();
    each.choices = ChoicesOf(type);
    if (each.names.empty()) {  // a positional argument
      if (!each.choices.empty()) words.choices = each.choices;
      continue;
    }
    each.description = option->get_description();
    each.takes_value = option->get_items_expected_max() > 0;
    each.is_path = type == "PATH" || type == "FILE" || type == "OUT";
    words.options.push_back(std::move(each));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    words.commands.emplace_back(command->get_name(), command->get_description());
  }
  out->push_back(words);
  for (const CLI::App* command : app.get_subcommands({})) {
    Collect(*command,
            path.empty() ? command->get_name() : absl::StrCat(path, " ", command->get_name()), out);
  }
}

// `text` in single quotes, for a shell.
std::string Single(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The shell's cases of `$at $word`, which lead from a command to its subcommand.
std::string Steps(const std::vector<CommandWords>& all, const char* indent) {
  std::string text;
  for (const CommandWords& each : all) {
    for (const auto& [name, description] : each.commands) {
      absl::StrAppend(&text, indent, "'", each.path, " ", name, "') at='", each.path,
                      each.path.empty() ? "" : " ", name, "' ;;\n");
    }
  }
  return text;
}

std::string Bash(const std::vector<CommandWords>& all) {
  std::string values, words;
  for (const CommandWords& each : all) {
    std::vector<std::string> list = each.choices;
    for (const auto& [name, description] : each.commands) list.push_back(name);
    for (const OptionWords& option : each.options) {
      list.insert(list.end(), option.names.begin(), option.names.end());
      if (!option.takes_value) continue;
      for (const std::string& name : option.names) {
        absl::StrAppend(&values, "    '", each.path, " ", name, "') ",
                        option.is_path ? "COMPREPLY=($(compgen -f -- \"$cur\"))"
                        : option.choices.empty()
                            ? ":"
                            : absl::StrCat("COMPREPLY=($(compgen -W '",
                                           absl::StrJoin(option.choices, " "), "' -- \"$cur\"))"),
                        "; return ;;\n");
      }
    }
    absl::StrAppend(&words, "    '", each.path, "') words='", absl::StrJoin(list, " "), "' ;;\n");
  }
  return absl::StrCat(
      "# gpushare: completion for bash\n"
      "_gpushare() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} at='' words='' i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
      "      ((i == COMP_CWORD - 1)) && COMPREPLY=($(compgen -c -- \"$cur\"))\n"
      "      return\n"
      "    fi\n"
      "    case \"$at ${COMP_WORDS[i]}\" in\n",
      Steps(all, "      "),
      "    esac\n"
      "  done\n"
      "  case \"$at ${COMP_WORDS[COMP_CWORD-1]}\" in\n",
      values,
      "  esac\n"
      "  case \"$at\" in\n",
      words,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "}\n"
      "complete -o default -F _gpushare gpushare\n");
}

// An item for zsh's _describe, which splits at the colon.
std::string Described(const std::string& name, const std::string& description) {
  return Single(absl::StrCat(name, ":", absl::StrReplaceAll(description, {{":", "\\:"}})));
}

std::string Zsh(const std::vector<CommandWords>& all) {
  std::string values, words;
  for (const CommandWords& each : all) {
    std::string list;
    for (const std::string& choice : each.choices) absl::StrAppend(&list, " ", Single(choice));
    for (const auto& [name, description] : each.commands) {
      absl::StrAppend(&list, " ", Described(name, description));
    }
    for (const OptionWords& option : each.options) {
      for (const std::string& name : option.names) {
        absl::StrAppend(&list, " ", Described(name, option.description));
        if (!option.takes_value) continue;
        absl::StrAppend(&values, "    '", each.path, " ", name, "') ",
                        option.is_path ? "_files"
                        : option.choices.empty()
                            ? ":"
                            : absl::StrCat("compadd ", absl::StrJoin(option.choices, " ")),
                        "; return ;;\n");
      }
    }
    absl::StrAppend(&words, "    '", each.path, "') list=(", list, ") ;;\n");
  }
  return absl::StrCat(
      "#compdef gpushare\n"
      "_gpushare() {\n"
      "  local at='' i\n"
      "  local -a list\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    [[ ${words[i]} == -- ]] && { _normal; return }\n"
      "    case \"$at ${words[i]}\" in\n",
      Steps(all, "      "),
      "    esac\n"
      "  done\n"
      "  case \"$at ${words[CURRENT-1]}\" in\n",
      values,
      "  esac\n"
      "  case \"$at\" in\n",
      words,
      "  esac\n"
      "  _describe gpushare list || _files\n"
      "}\n"
      "if [[ $funcstack[1] == _gpushare ]]; then _gpushare \"$@\"; else compdef _gpushare "
      "gpushare; fi\n");
}

std::string Fish(const std::vector<CommandWords>& all) {
  std::string text = "# gpushare: completion for fish\ncomplete -c gpushare -f\n";
  for (const CommandWords& each : all) {
    std::string when = "__fish_use_subcommand";
    if (!each.path.empty()) {
      std::vector<std::string> seen;
      for (const auto word : absl::StrSplit(each.path, ' ')) {
        seen.push_back(absl::StrCat("__fish_seen_subcommand_from ", std::string(word)));
      }
      when = absl::StrJoin(seen, "; and ");
    }
    const std::string begin = absl::StrCat("complete -c gpushare -n ", Single(when));
    for (const auto& [name, description] : each.commands) {
      absl::StrAppend(&text, begin, " -a ", name, " -d ", Single(description), "\n");
    }
    for (const std::string& choice : each.choices)
      absl::StrAppend(&text, begin, " -a ", choice, "\n");
    for (const OptionWords& option : each.options) {
      absl::StrAppend(&text, begin);
      for (const std::string& name : option.names) {
        absl::StrAppend(&text, name.substr(0, 2) == "--" ? absl::StrCat(" -l ", name.substr(2))
                                                         : absl::StrCat(" -s ", name.substr(1)));
      }
      if (option.takes_value) absl::StrAppend(&text, option.is_path ? " -r -F" : " -x");
      if (!option.choices.empty()) {
        absl::StrAppend(&text, " -a ", Single(absl::StrJoin(option.choices, " ")));
      }
      absl::StrAppend(&text, " -d ", Single(option.description), "\n");
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> all;
  Collect(app, "", &all);
  if (shell == "bash") return Bash(all);
  if (shell == "zsh") return Zsh(all);
  if (shell == "fish") return Fish(all);
  return absl::InvalidArgumentError(
      absl::StrCat("'", shell.substr(0, 40), "' given; allowed: bash, zsh or fish"));
}

void AddCompletion(CLI::App* app, std::function<ExitCode()>* chosen) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* const completion =
      app->add_subcommand("completion", "Print the completion script of a shell");
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("bash|zsh|fish");
  completion->callback([=] {
    *chosen = [=] {
      const absl::StatusOr<std::string> script = CompletionScript(*app, *shell);
      if (!script.ok()) return Fail("completion", kExitUsage, script.status());
      Print(*script);
      return FinishStdout("completion");
    };
  });
}

}  // namespace gpushare::cli
